#!/usr/bin/env bash
# links.sh URL FILE prints a Markdown file of the repository, with its links to files as links below URL: for those who get it by itself.
set -euo pipefail
sed -E "s#\]\((\.\./)*([A-Za-z][^):]*)\)#](${1%/}/\2)#g" "$2"
