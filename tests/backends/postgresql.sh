# Leaves the folder `whole` with `bin/postgres`: of this machine's PostgreSQL, else of Debian's packages, unpacked with
# what they need here. Nothing is installed and no rights are needed: apt keeps its lists and packages in this folder.
set -eu

for found in /usr/lib/postgresql/*/bin/postgres; do newest=$found; done
mkdir whole
if [ -x "$newest" ] && [ -x "${newest%/*}/initdb" ]; then
  ln -s "${newest%/*}" whole/bin
  exit 0
fi

here=$PWD
mkdir -p apt/lists/partial apt/cache/archives/partial packages
apt() {
  apt-get -o Dir::State::lists="$here/apt/lists" -o Dir::Cache="$here/apt/cache" -o Debug::NoLocking=true \
    -o APT::Sandbox::User= "$@"
}
apt update
# What would be installed, by name; the C library stays the machine's own.
names=$(apt --simulate --no-install-recommends install postgresql | sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -vx 'libc6\|libc-bin')
(cd packages && apt download $names)
for package in packages/*.deb; do dpkg-deb -x "$package" whole; done
ln -s "$(cd whole && echo usr/lib/postgresql/*/bin)" whole/bin
rm -rf apt packages whole/usr/include whole/usr/share/doc whole/usr/share/man whole/usr/share/locale
