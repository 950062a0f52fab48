#!/usr/bin/env bash
# Installs what is missing from tools/packages.txt (--with-tests: and from packages-tests.txt) and makes
# the Python environment .venv.
# Idempotent; says what it does; does nothing, quickly, when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

lists=(tools/packages.txt)
[ "${1:-}" != --with-tests ] || lists+=(tools/packages-tests.txt)
missing=()
while read -r package; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done < <(grep -hv '^#' "${lists[@]}")

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${#missing[@]} Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
  echo "setup: making the Python environment .venv"
  /usr/bin/python3 -m venv .venv
fi

if [ "${1:-}" = --with-tests ] && ! cmp -s tests/e2e/requirements.txt .venv/requirements.txt; then
  echo "setup: installing Python test packages: $(grep -v '^#' tests/e2e/requirements.txt | tr '\n' ' ')"
  .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/e2e/requirements.txt
  cp tests/e2e/requirements.txt .venv/requirements.txt
fi
