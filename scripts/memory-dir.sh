#!/bin/sh
# Prints a directory in memory for the files of tests, or nothing where the system has no room there or runs no programs from it. On a disk that
# other machines share an fsync takes over a second now and then: nodes then refuse adds and hand their shards over, as they should, and a test of
# how long a client waits measures the disk.
dir=/dev/shm
probe=$(mktemp "$dir/carillon.XXXXXX" 2>/dev/null) || exit 0
trap 'rm -f "$probe"' EXIT
printf '#!/bin/sh\n' >"$probe" && chmod +x "$probe" && "$probe" 2>/dev/null || exit 0
room=8388608 # KiB
[ "$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')" -ge $room ] || exit 0
[ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null)" -ge $((2 * room)) ] 2>/dev/null && echo "$dir"
exit 0
