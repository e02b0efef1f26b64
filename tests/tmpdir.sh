#!/bin/sh
# Prints the directory for temporary files of the tests: in memory if 8 GiB are available there.
room=$(df -Pm /dev/shm 2>/dev/null | awk 'END { print $4 }')
if [ "${room:-0}" -ge 8192 ] && [ -w /dev/shm ] && ! grep -q ' /dev/shm [^ ]* [^ ]*noexec' /proc/mounts; then
    echo /dev/shm
else
    echo /tmp
fi
