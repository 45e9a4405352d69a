#!/bin/sh
# A recorded conversation goes on with the local model: it is branched, compacted and looked at.
# Usage: sh demo.sh PATH_OF_STRANDLINE
set -eu
strandline=$1
here=$(dirname "$0")
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
sessions=$state/agents/main/sessions
mkdir -p "$sessions"
cp "$here/harbour.jsonl" "$sessions/harbour.jsonl"
chmod -R go-rwx "$state"
file=$sessions/harbour.jsonl

say() { printf '\n\033[1m== %s\033[0m\n' "$1"; }
run() { printf '\033[2m$ strandline %s\033[0m\n' "$*"; "$strandline" --state-dir "$state" "$@"; }

say 'A conversation that was recorded with `strandline chat`'
run session show "$file" | head -n 12

say 'It goes on where it stood, with the local model'
run agent --session-id harbour --message 'Give me one more idea, in one short sentence.'

say 'Back to an earlier entry, found by its label; what is said now grows a branch'
run session branch "$file" question
run agent --session-id harbour --message 'Answer in five words.'

say 'What a compaction would do'
run session compact "$file" --dry-run

say 'What is older is compacted; the transcript keeps everything'
printf '/compact\n/status\n' | run chat --session-key agent:main:explicit:harbour

say 'The tree: nothing is gone'
run session tree "$file"

say 'What the model would see now'
run session context "$file"

say 'And the file is sound'
run session verify "$file"
