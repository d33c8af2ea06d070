"""What is done to files through a POSIX shell, with no more than BusyBox has; and how its answers are read.

Each script gets its paths as arguments, never as part of its text. What it refuses itself it says in the C library's
words, as the programs that it calls do.
"""

from __future__ import annotations

import stat as modes
from typing import Final

from device_agent.host import Kind, Stat
from device_agent.local_files import KINDS

READ: Final = """
f=$1; if [ -d "$f" ]; then echo Is a directory >&2; exit 1; fi
if [ -p "$f" ] || [ -S "$f" ]; then echo No such device or address >&2; exit 1; fi
if [ "$2" = 0 ]; then exec head -c "$3" "$f"; fi
head -c 0 "$f" || exit 1
{ dd bs=65536 skip=$(($2/65536)) count=0; [ $(($2%65536)) = 0 ] || dd bs=$(($2%65536)) count=1 of=/dev/null
head -c "$3"; } <"$f" 2>/dev/null
"""

STAT: Final = """
f=$1; L=$2
stat $L -c '%f %u %g %s %X %Y %Z %i %U %G' "$f" 2>/dev/null || {
ls $L -ld "$f" >/dev/null || exit 1
m=$(date -r "$f" +%s 2>/dev/null); set -f; set -- $(ls $L -ldni "$f"); i=$1 p=$2 u=$4 g=$5 s=$6
set -- $(ls $L -ldi "$f"); echo "ls $i $p $u $g $s ${m:-0} $4 $5"; }
if [ -z "$L" ] && [ -L "$f" ]; then
if command -v readlink >/dev/null 2>&1; then readlink "$f"; else l=$(ls -ld "$f"); echo "${l#* -> }"; fi; fi
"""

LIST: Final = """
ls -d "$1/." >/dev/null || exit 1
[ -r "$1" ] || { echo Permission denied >&2; exit 1; }
cd "$1" || exit 1
for n in * .*; do case $n in .|..) continue;; esac
if [ -e "$n" ] || [ -L "$n" ]; then printf '%s\\000' "$n"; fi; done
"""

REMOVE: Final = """
f=$1
if [ -L "$f" ] || ! [ -d "$f" ]; then rm "$f" </dev/null; exit; fi
if [ -z "$2" ]; then exec rmdir "$f"; fi
if [ "$(cd "$f" && pwd -P)" = / ]; then echo Device or resource busy >&2; exit 1; fi
exec rm -rf "$f"
"""

KEEP: Final = """
mark() { l=$(ls -ld "$1"); l=${l%% *}; printf %s "${l#??????????}"; stat -c %C "$1" 2>/dev/null; }
is_mount() {
while read -r _ _ _ _ l _; do [ "$l" != "$f" ] || return 0; done </proc/self/mountinfo; return 1
} 2>/dev/null
alike() {
cp --attributes-only --preserve=all --no-preserve=ownership "$1" "$2" </dev/null 2>/dev/null ||
if command -v getfacl >/dev/null 2>&1 && command -v setfacl >/dev/null 2>&1
then getfacl -cEn "$1" 2>/dev/null </dev/null | setfacl --set-file=- "$2" 2>/dev/null; fi
}
keep() {
(umask 077; set -C; : >"$u") || exit 1
alike "$f" "$u"; chmod 600 "$u" || { rm -f "$u"; exit 1; }
alike "$u" "$t"; rm -f "$u"
[ "$(mark "$f")" = "$(mark "$t")" ] || chcon "$(stat -c %C "$f")" "$t" 2>/dev/null
[ "$(mark "$f")" = "$(mark "$t")" ] || is_mount || { echo 'the access control list or the label cannot be kept \
with the cp, setfacl and chcon of the device: Operation not supported' >&2; exit 1; }
}
"""
"""Gives the file ``$t`` the access control list and label of ``$f``, and its other extended attributes where cp is
GNU's. ``$t`` gets them from the empty file ``$u``, whose mode is 0600: the mode and the list of ``$f`` never open the
new content. The caller gives ``$t`` its owner and then its mode, which opens the list as far as it says. A mount point
keeps its own, since it is written over. ls shows a list as "+" and a label as "." behind the mode; that of BusyBox
shows neither."""

PLACE: Final = """
marks() { set -f; set -- $(ls -ldn "$1"); set +f; echo "${1%[.+]} $3 $4"; }
over() {
s=$(($(wc -c <"$f"))) z=$(($(wc -c <"$t"))) b=$(marks "$f")
if [ -n "$m" ] && [ "$b" != "$(marks "$t")" ]; then chmod go-rwx "$f" || exit 1; fi
if [ "$z" -gt "$s" ]; then tail -c "+$((s+1))" "$t" >>"$f" || {
dd if=/dev/null of="$f" bs=1 seek="$s" 2>/dev/null; chmod "$m" "$f"; exit 1; }; fi
cat "$t" 1<>"$f" || exit 1
[ "$z" -ge "$s" ] || dd if=/dev/null of="$f" bs=1 seek="$z" 2>/dev/null || exit 1
if [ "$b" != "$(marks "$t")" ]; then
[ -z "$o" ] || chown "$o" "$f" || exit 1; [ -z "$m" ] || chmod "$m" "$f" || exit 1; fi
sync "$f" 2>/dev/null || sync 2>/dev/null; rm -f "$t"
}
place() {
w=$(mv -f "$t" "$f" </dev/null 2>&1) || case $w in *esource?busy*) over;; *) echo "$w" >&2; exit 1;; esac
}
"""
"""Puts the file ``$t`` in the place of ``$f``. What is itself a mount point is written over, and what makes it longer
comes first: so a full disk is found while the old content is whole."""

WRITE: Final = f"""{KEEP}{PLACE}
d=$1 t=$2 f=$3 n=$4 m=$5 o=$6 p=$7 u=$8
ls -d "$d." >/dev/null || exit 1
if ! [ -e "$f" ] || [ -f "$f" ]; then :; elif [ -d "$f" ]; then echo Is a directory >&2; exit 1
else echo Invalid argument >&2; exit 1; fi
h='[0-9a-f]'; for l in "$p"????????; do case ${{l#"$p"}} in *[!0-9a-f]*) ;; *) rm -f "$l";; esac; done
i=; w=$( (umask 077; set -C; : >"$t") 2>&1) || case $w in
*ead-only?file?system*) [ -f "$f" ] && [ -w "$f" ] && t=$(mktemp /tmp/.outstation-XXXXXX 2>/dev/null) && i=1 ||
{{ echo "$w" >&2; exit 1; }};; *) echo "$w" >&2; exit 1;; esac
trap 'rm -f "$t" "$u"' EXIT; trap 'exit 1' HUP INT TERM PIPE
if [ -n "$m" ]; then chmod 600 "$t" || exit 1; else chmod +r "$t" || exit 1; fi
if [ -f "$f" ] && [ -z "$i" ]; then keep; fi
cat >"$t" || exit 1
[ "$(wc -c <"$t")" -eq "$n" ] || {{ echo Connection reset by peer >&2; exit 1; }}
[ -z "$o" ] || chown "$o" "$t" || exit 1
[ -z "$m" ] || chmod "$m" "$t" || exit 1
sync "$t" 2>/dev/null || sync 2>/dev/null
if [ -n "$i" ]; then over; else place; fi
trap - EXIT
sync "$d" 2>/dev/null || sync 2>/dev/null
exit 0
"""
"""It renames nothing that is not whole: what a broken connection cuts short has the wrong size."""

APPEND: Final = """
f=$1 n=$2 e=$3; set -f
size() { set -- $(ls -ldn "$f"); s=$5; }
if [ "$n" = 0 ]; then
if [ -d "$f" ] && ! [ -L "$f" ]; then echo Is a directory >&2; exit 1; fi
rm -f "$f" </dev/null || exit 1; (umask 077; set -C; : >"$f") || exit 1
elif [ -L "$f" ]; then echo Invalid argument >&2; exit 1
elif ! [ -e "$f" ]; then echo No such file or directory >&2; exit 1
elif ! [ -f "$f" ]; then echo Invalid argument >&2; exit 1
else size; if [ "$s" -lt "$n" ]; then echo Invalid argument >&2; exit 1; fi
[ "$s" = "$n" ] || dd if=/dev/null of="$f" bs=1 seek="$n" 2>/dev/null || exit 1; fi
cat >>"$f" || exit 1
size; [ "$s" = "$e" ] || { echo Connection reset by peer >&2; exit 1; }
"""

REPLACE: Final = f"""{KEEP}{PLACE}
t=$1 f=$2 m=$3 o=$4 d=$5 u=$6
if [ -L "$t" ]; then echo Invalid argument >&2; exit 1; fi
if ! [ -e "$t" ]; then echo No such file or directory >&2; exit 1; fi
if ! [ -f "$t" ]; then echo Invalid argument >&2; exit 1; fi
if [ -L "$f" ] || ! [ -e "$f" ] || [ -f "$f" ]; then :; elif [ -d "$f" ]; then echo Is a directory >&2; exit 1
else echo Invalid argument >&2; exit 1; fi
if [ -f "$f" ] && ! [ -L "$f" ]; then keep; touch -c "$t"; fi
[ -z "$o" ] || chown "$o" "$t" || exit 1
if [ -n "$m" ]; then chmod "$m" "$t" || exit 1; else chmod +r "$t" || exit 1; fi
sync "$t" 2>/dev/null || sync 2>/dev/null
if [ -L "$f" ] && [ -d "$f" ]; then rm -f "$f" </dev/null || exit 1; fi
place
sync "$d" 2>/dev/null || sync 2>/dev/null
exit 0
"""

LETTERS: Final[dict[str, Kind]] = {
    "-": "file",
    "d": "directory",
    "l": "link",
    "b": "block",
    "c": "character",
    "p": "fifo",
    "s": "socket",
}


def stat_of(said: bytes) -> Stat:
    """What ``STAT`` printed."""
    first, _, target = said.partition(b"\n")
    words = first.decode(errors="replace").split()
    if words[0] == "ls":
        inode, letters, uid, gid, size, mtime, user, group = words[1:9]
        kind, mode = LETTERS[letters[0]], _mode(letters)
        atime = ctime = mtime
        size = size if size.isdecimal() else "0"  # A device has its number there: "5,".
    else:
        raw, uid, gid, size, atime, mtime, ctime, inode, user, group = words
        kind, mode = KINDS[modes.S_IFMT(int(raw, 16))], modes.S_IMODE(int(raw, 16))
    return Stat(
        kind=kind,
        mode=mode,
        uid=int(uid),
        gid=int(gid),
        user=uid if user == "UNKNOWN" else user,
        group=gid if group == "UNKNOWN" else group,
        size=int(size),
        atime=float(int(atime)),
        mtime=float(int(mtime)),
        ctime=float(int(ctime)),
        inode=int(inode),
        target=target.removesuffix(b"\n").decode(errors="surrogateescape") if kind == "link" else "",
    )


def _mode(letters: str) -> int:
    """The permission bits behind ``rwsr-xr-t``."""
    mode = sum(1 << (8 - place) for place, letter in enumerate(letters[1:10]) if letter in "rwxst")
    special = zip((3, 6, 9), (modes.S_ISUID, modes.S_ISGID, modes.S_ISVTX), strict=True)
    return mode | sum(bit for place, bit in special if letters[place] in "sStT")
