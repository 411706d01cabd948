# Targets that need nothing but Go: check and what it is made of. What needs root,
# Debian packages or a lab says so and skips with its reason.

GO      ?= go
PKGS    ?= ./...
# What race, invariants and the build for s390x are for, unless PKGS names something else.
# go test begins with what is named first: ucp takes longest, so others run beside it.
LIBS     = $(if $(filter ./...,$(PKGS)),./ucp/... ./uct/... ./internal/... ./ucs/... ./wireup/...,$(PKGS))
FUZZ    ?= 2000x
RACE    ?= -short
GOFILES  = $(shell git ls-files '*.go')
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# vet has a target, so the other runs of the tests leave it out.
GOTEST   = $(GO) test -vet=off

.PHONY: help quick check fmt vet lint build modules test race invariants cross byte-order fuzz-short arm64 lab ucx ucx-debian storm kills service idle hostile soak sweep mutate api perf-tables bench bench-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quick: ## gofmt, vet, the rules of the tree, and tests of packages that differ from main, within a minute
	@.ci/quick

check: fmt vet lint build modules cross byte-order test race invariants fuzz-short bench-smoke ## everything that must pass before a commit lands

fmt: ## fail if gofmt would change a file
	@bad=$$(gofmt -l $(GOFILES)); if [ -n "$$bad" ]; then echo "gofmt would change:"; echo "$$bad"; exit 1; fi

# Packages with files for one architecture; the others are the same on each.
ARCHPKGS = $(sort $(dir $(addprefix ./,$(shell git ls-files '*_amd64*' '*_arm64*'; git grep -lE '^//go:build.*(amd64|arm64)' -- '*.go'))))

vet: ## go vet; also for arm64 in packages with files for one architecture
	$(GO) vet $(PKGS)
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet $(ARCHPKGS)

lint: ## staticcheck
	$(STATICCHECK) $(PKGS)

build: ## builds without cgo
	CGO_ENABLED=0 $(GO) build $(PKGS)

modules: ## vet and tests of packages and examples that are modules of their own (Prometheus, gRPC, net/http), if their modules can be downloaded
	@.ci/modules

test: ## all tests, in random order
	$(GO) test -shuffle=on $(PKGS)

# Most studies, probes and plots of perftest have one goroutine, or run programs.
RACEMORE = ./examples/... $(addprefix ./perftest/internal/,layers/... measure/... peers/... studies/compare studies/steps studies/threads)
RACEPKGS = $(LIBS) $(if $(filter ./...,$(PKGS)),$(RACEMORE))
# Libraries that start goroutines, in their code or in tests, and those over a software HCA, which has some; without tools,
# what only tests use, and ucpprom, which is a module of its own.
TESTONLY   = ./ucp/ucpprom/ ./internal/mutate/ ./internal/race/ ./internal/testenv/% ./uct/all/ ./uct/ucttest/ %/rctest/ %/fakekernel/
GOROUTINES = ./ucp $(filter-out $(TESTONLY),$(sort $(dir $(addprefix ./,$(shell git grep -lE '^[[:space:]]+go [a-z]|[.]Go[^[:alnum:]_ ]' -- 'ucp/*.go' 'uct/*.go' 'internal/*.go'))))) ./uct/ib/rc ./uct/ib/ud ./uct/ib/internal/rccore

# By itself every program with the detector built in sleeps a second before it exits, and
# the tests start some hundreds.
race: ## tests of packages with several goroutines under the race detector, with -tags invariants, GOMAXPROCS 4 and -short; RACE= removes -short
	CGO_ENABLED=1 GORACE="atexit_sleep_ms=0 $$GORACE" $(GOTEST) -race -tags invariants -cpu 4 -timeout 20m $(RACE) $(RACEPKGS)

invariants: ## tests of the libraries with -tags invariants and checks of pointer arithmetic, with GOMAXPROCS 1
	$(GOTEST) -short -cpu 1 -timeout 20m -tags invariants -gcflags=./...=-d=checkptr $(LIBS)

cross: ## builds for arm64, and checks the barriers in the generated code
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build $(PKGS)
	GUCX_TEST_CROSS=1 $(GOTEST) -run '^TestListing$$' ./internal/mmio

byte-order: ## builds the libraries for s390x, which is big-endian
	CGO_ENABLED=0 GOARCH=s390x $(GO) build $(LIBS)

fuzz-short: ## runs each fuzz target for FUZZ inputs or time (2000x; 60s)
	.ci/fuzz $(FUZZ)

api: ## writes docs/api, the exported declarations of each public package; a test compares them
	$(GO) run ./internal/apilist

perf-tables: ## writes the tables of docs/perf/README.md from docs/perf/results; a test compares them
	$(GO) run ./internal/perftable

arm64: ## tests with -short on an emulated arm64 machine with pages of 4 and of 16 KiB, if LAB names the folder of one
	.ci/arm64 $(PKGS)
	.ci/arm64 --16k $(PKGS)

lab: ## tests of verbs, rc and ud on rxe, the software RoCE device of the kernel, in virtual machines, if LAB names their folder; 20 minutes
	.ci/lab

ucx: ## ucxpeer against the installed UCX, or the one in the folder UCX_LIB, in all roles; skips with the reason if there is none
	@$(if $(UCX_LIB),GUCX_TEST_UCX_LIB=$(UCX_LIB)) .ci/ucx

UCX_SUITES ?= trixie sid
ucx-debian: ## ucxpeer against the UCX of other suites of Debian, which apt-get downloads: UCX_SUITES="trixie sid"
	@.ci/ucx-debian $(UCX_SUITES)

storm: ## kills, connects and disconnects peers of a server, and closes memory during transfers, 1,000 times; an hour
	GUCX_TEST_SOAK=1 $(GO) test -run '^Test(Storm|Churn|Revoke)' -count 1 -timeout 3h -v ./uct/self ./uct/sm ./uct/tcp ./internal/softhca ./ucp

kills: ## kills and restarts servers of examples/kv under load, 200 times, and checks the results of the clients; five minutes
	GUCX_TEST_SOAK=1 $(GO) test -run '^TestKills' -count 1 -timeout 1h -v ./examples/kv/kvstore

TIME ?= 10m

service: ## 8 clients with 8 goroutines of examples/kv for TIME (default 10m), with random kills of clients and servers: prints their metrics, and growth at the end
	KVSTORE_SERVICE_TIME=$(TIME) $(GO) test -run '^TestService' -count 1 -timeout 24h -v ./examples/kv/kvstore

idle: ## CPU time of idle workers with peers and after them, over each transport, 10 s each; 25 minutes
	GUCX_TEST_SOAK=1 GUCX_UCP_IDLE=10 $(GO) test -run '^TestIdle' -count 1 -timeout 1h -v ./ucp

hostile: ## measures an honest client while others flood its server: a table of echoes, memory and CPU time; six minutes
	GUCX_TEST_SOAK=1 $(GO) test -run '^TestPests' -count 1 -timeout 1h -v ./ucp

soak: ## all tests, with many repetitions of tests of races; hours
	GUCX_TEST_SOAK=1 $(GO) test -timeout 6h $(PKGS)

sweep: ## the combinations that "test" omits because they resemble others; three minutes
	.ci/sweep

MUTANTS ?= 40
SEED    ?= 1

mutate: ## makes MUTANTS changes to the package PKG, chosen by SEED, and lists those that its tests, and the tests of USERS, do not detect; IDS=3,12-40 runs only these
	$(GO) run ./internal/mutate -pkg $(PKG) -users "$(USERS)" -n $(MUTANTS) -seed $(SEED) -ids "$(IDS)"

bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

bench-smoke: ## runs each benchmark once
	@.ci/quiet $(GOTEST) -run '^$$' -bench . -benchtime 1x $(sort $(dir $(addprefix ./,$(shell git grep -l '^func Benchmark' -- '*_test.go'))))
