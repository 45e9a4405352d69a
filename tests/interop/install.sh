#!/bin/sh
# Installs the real pi and the real OpenClaw, for the tests of this folder and for the
# benchmarks. Node 20 or later and npm must be there; a Node 22 for OpenClaw comes along.
set -eu

if [ $# -ne 1 ]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1/pi" "$1/openclaw"
folder=$(cd "$1" && pwd)

npm install --prefix "$folder/pi" --ignore-scripts --no-audit --no-fund \
  @mariozechner/pi-coding-agent@0.73.1

# The package `node` fetches its program in a script; it runs alone, before anything else.
npm install --prefix "$folder/openclaw" --no-audit --no-fund node@22.23.3
PATH="$folder/openclaw/node_modules/node/bin:$PATH" \
  npm install --prefix "$folder/openclaw" --ignore-scripts --no-audit --no-fund \
  openclaw@2026.6.10

echo "Now set these, and run the tests again:"
echo "export STRANDLINE_PI_DIR='$folder/pi'"
echo "export STRANDLINE_OPENCLAW_DIR='$folder/openclaw'"
