# The front door; the work is done by scripts/ and CMake.
BUILD := build
PREFIX ?= /usr/local
JOBS ?= $(or $(HEED_JOBS),$(shell nproc))

.PHONY: help demo build test install format tidy clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 15

demo: build ## build, then compute, check and time attention on this machine
	@$(BUILD)/bin/heed demo

build: ## library and command, in build/lib and build/bin (installs what is missing)
	@scripts/bootstrap.sh build
	@cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build $(BUILD) --parallel $(JOBS) --target heed heed_command

test: ## all tests (installs what is missing)
	@HEED_JOBS=$(JOBS) scripts/test.sh

install: build ## install under PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

format: ## clang-format every source file
	@scripts/bootstrap.sh test
	@scripts/format.sh

tidy: ## clang-tidy over src/core and src/dispatch
	@scripts/bootstrap.sh test
	@cmake --preset release --log-level=WARNING >/dev/null
	@HEED_JOBS=$(JOBS) scripts/tidy.sh

clean: ## remove the build trees (.venv stays)
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-coverage
