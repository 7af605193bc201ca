"""Assembly: spans put together by trace until an answer is complete, and answers by conversation."""
