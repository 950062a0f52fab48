# Thin: each target says in one line what it does; the work is in CMake, ctest and tools/.
MODEL  ?= smollm2-135m
JOBS   ?= $(shell nproc)
BINARY := build/release/outrider
FLAGS  ?=

.PHONY: help setup serve test check build bench clean format model

help:                ## this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

serve: model build   ## install, build, fetch the demo model, start gateway + router + target + store (FLAGS="--http 127.0.0.1:8095", MODEL=name)
	$(BINARY) serve --model models/$(MODEL).gguf --store-dir data/kv $(FLAGS)

build: setup         ## install packages and build the release binary
	@[ -f $(BINARY) ] || echo "building; the first time takes about 5 minutes on two quiet cores"
	@[ -f build/release/build.ninja ] || cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build --preset release --parallel $(JOBS) --target outrider

setup:
	@tools/setup.sh

model: setup         ## fetch the demo model (MODEL=name), verified by checksum
	@[ -f models/$(MODEL).gguf ] || .venv/bin/python tools/fetch_model.py $(MODEL)

test:                ## everything a newcomer needs to trust the tree (what CI runs)
	@tools/setup.sh --with-tests
	@tools/test.sh

check:               ## what CI runs, plus format
	@tools/setup.sh --with-tests
	@tools/check/check_format.sh
	@tools/test.sh

bench:               ## kernel benchmarks of this machine
	@tools/setup.sh
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release --parallel $(JOBS) --target kernels_bench
	build/release/bench/kernels_bench

format:              ## rewrite the sources with clang-format
	@git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs clang-format-14 -i

clean:               ## remove build/ (keeps models and packages)
	rm -rf build
