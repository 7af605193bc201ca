# Leaves the program `loki`, single binary, of the version that is the argument. Its release replaces some modules by
# forks; a module that builds it has to say the same. Left out is what leads into its own source tree: that is published.
set -eu

version=v$1
loki=github.com/grafana/loki/v3

go mod init backend
released=$(go mod download -json "$loki@$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
grep '^replace ' "$released" | grep -v '=> \./' >>go.mod
# As a tool: the module graph of the program's own release, its checksums verified.
go get -tool "$loki/cmd/loki@$version"
go build -ldflags='-s -w' -o loki "$loki/cmd/loki"
