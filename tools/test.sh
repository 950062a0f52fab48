#!/usr/bin/env bash
# Everything that `make test` runs: repository checks, unit tests under ASan + UBSan, races under TSan and the
# end-to-end suites on the release build with the demo model. Stops at the first failing stage.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
python=.venv/bin/python

[ -d build/tsan ] || echo "The first run builds three trees: over 30 minutes on two quiet cores, 4.5 GB in build/."

stage() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }
configure() { cmake --preset "$1" --log-level=WARNING "${@:2}"; }
run_tests() { ctest --test-dir "build/$1" --output-on-failure --timeout 600 "${@:2}"; }

stage "repository checks"
tools/check/check_layers.py
tools/check/check_tree.py
for folder in tools tools/check; do $python -m unittest discover -q -s "$folder" -p '*_test.py'; done
$python tests/support/make_tiny_model_test.py

stage "unit tests and fuzz targets: ASan + UBSan"
# Where a block was allocated is kept for each one: five frames of it cost an eighth less than thirty.
export ASAN_OPTIONS=${ASAN_OPTIONS-malloc_context_size=5}
configure dev
cmake --build --preset dev --parallel "$jobs" --target unit
run_tests dev -L unit --parallel "$jobs"

stage "classes with threads: TSan"
configure tsan
cmake --build --preset tsan --parallel "$jobs" --target races
run_tests tsan -L races --parallel "$jobs"

stage "end to end: release build, demo model"
# The CUDA back end compiles wherever nvcc is; one architecture, so as to take a minute.
cuda=()
if [ -x /usr/local/cuda/bin/nvcc ] || command -v nvcc >/dev/null; then
  cuda=(-DOUTRIDER_CUDA=ON -DOUTRIDER_CUDA_ARCHITECTURES=90a)
fi
configure release "${cuda[@]}"
cmake --build --preset release --parallel "$jobs" --target outrider end_to_end
[ -f models/smollm2-135m.gguf ] || $python tools/fetch_model.py smollm2-135m
run_tests release -L e2e -E '^e2e_' --parallel "$jobs"
run_tests release -L e2e -R '^e2e_'  # servers want the machine for themselves

stage "done"
