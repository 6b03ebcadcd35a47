#!/usr/bin/env bash
# Makes days.txt again by the source of Debian's cron. It needs a Debian with dpkg-dev and gcc.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial
echo "deb-src http://deb.debian.org/debian bookworm main" > sources.list
apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" source cron > source.log
cd cron-*/
cp "$here/days.c" .
gcc -std=gnu99 -w -DDEBIAN -DPOSIX -DDEBUGGING=0 -D_GNU_SOURCE -I. -o days \
    days.c entry.c env.c misc.c database.c user.c
{
    echo "# Made by run.sh from $(basename ../cron_*.dsc .dsc) of Debian."
    ./days
} > "$here/days.txt"
