#!/usr/bin/env bash
# Fails if clang-format would change a tracked source.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror
echo "format check: 0 problems"
