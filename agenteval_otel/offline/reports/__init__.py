"""Reports: the totals of a run, as the command line, notebooks and tests show them."""
