# The commands of this repository; CONTRIBUTING.md explains them.
# Variables: SEED (repeat a run's order), PACKAGES (narrow a test run),
# BENCHTIME, BENCH, COUNT, FUZZTIME.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export BENCHTIME BENCH COUNT FUZZTIME SEED PACKAGES

services := scripts/with-services.sh

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## run the quickstart
	go run ./examples/quickstart

.PHONY: test
test: ## everything, with real servers and the race detector (about ten minutes)
	$(services) scripts/test.sh full

.PHONY: test-fast
test-fast: ## what needs no server, without the race detector
	scripts/test.sh fast

.PHONY: soak
soak: ## long scenarios at full size (hours)
	$(services) scripts/test.sh soak

.PHONY: bench
bench: ## every benchmark, beside its floor; the result is kept in bench.txt
	$(services) scripts/bench.sh | tee bench.txt

.PHONY: bench-once
bench-once: ## every benchmark once, to see that it runs
	BENCHTIME=1x $(services) scripts/bench.sh

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	scripts/fuzz.sh

.PHONY: lint
lint: ## gofumpt, go vet and staticcheck, in pinned versions
	scripts/lint.sh

.PHONY: vuln
vuln: ## known vulnerabilities in what is linked (asks the Go vulnerability database)
	go tool -modfile=tools/go.mod govulncheck ./...

.PHONY: newest
newest: ## the tests with the newest versions of all dependencies, in a copy
	$(services) scripts/newest.sh

.PHONY: build386
build386: ## build for 32 bits and run there what needs no server
	GOARCH=386 CGO_ENABLED=0 go build ./adapters/... ./store/pgstore ./store/redisstore
	GOARCH=386 CGO_ENABLED=0 go test -timeout=5m ./store ./store/rules ./keyfn/... ./middleware

.PHONY: golden
golden: ## the released record and wire formats against their golden files
	go test -count=1 -run 'Golden' ./...

.PHONY: dashboards
dashboards: ## Prometheus rules by promtool, and every dashboard query against a real Prometheus
	scripts/check-dashboards.sh

.PHONY: cover
cover: ## coverage of the library by all of its tests
	$(services) go test -timeout=15m -coverpkg=./adapters/...,./keyfn/...,./middleware/...,./store/... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -n 1

.PHONY: services stop env
services: ## start the servers and leave them running
	scripts/services.sh start
stop: ## stop them
	scripts/services.sh stop
env: ## print their addresses as shell variables
	@scripts/services.sh env
