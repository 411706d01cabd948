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

.PHONY: help quick check fmt vet lint build modules test race invariants cross byte-order fuzz-short arm64 lab ucx storm kills idle hostile soak sweep mutate api perf-tables bench bench-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quick: ## within a minute: gofmt, vet, the rules of the tree, and tests of packages that differ from main
	@.ci/quick

check: fmt vet lint build modules cross byte-order test race invariants fuzz-short bench-smoke ## everything that must pass before a commit lands

fmt: ## fail if gofmt would change a file
	@bad=$$(gofmt -l $(GOFILES)); if [ -n "$$bad" ]; then echo "gofmt would change:"; echo "$$bad"; exit 1; fi

# Packages with files for one architecture; the others are the same on each.
ARCHPKGS = $(sort $(dir $(addprefix ./,$(shell git ls-files '*_amd64*' '*_arm64*'; git grep -lE '^//go:build.*(amd64|arm64)' -- '*.go'))))

vet: ## go vet; for arm64, too, where that is other code
	$(GO) vet $(PKGS)
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet $(ARCHPKGS)

lint: ## staticcheck
	$(STATICCHECK) $(PKGS)

build: ## the build: no cgo
	CGO_ENABLED=0 $(GO) build $(PKGS)

modules: ## vet and tests of packages and examples that are modules of their own (Prometheus, gRPC, net/http), where their modules can be downloaded
	@.ci/modules

test: ## all tests, in random order
	$(GO) test -shuffle=on $(PKGS)

# Most studies, probes and plots of perftest have one goroutine, or run programs.
RACEPKGS = $(LIBS) $(if $(filter ./...,$(PKGS)),./examples/... $(addprefix ./perftest/internal/,layers/... measure/... peers/... \
	studies/compare studies/steps studies/threads))

# By itself every program with the detector built in sleeps a second before it exits, and
# the tests start some hundreds.
race: ## tests of what has several goroutines under the race detector, with 4 processors; without -short with RACE=
	CGO_ENABLED=1 GORACE="atexit_sleep_ms=0 $$GORACE" $(GOTEST) -race -cpu 4 -timeout 20m $(RACE) $(RACEPKGS)

invariants: ## tests of the libraries with 1 processor, and the checks of broken invariants and of pointer arithmetic built in
	$(GOTEST) -short -cpu 1 -timeout 20m -tags invariants -gcflags=./...=-d=checkptr $(LIBS)

cross: ## builds for arm64, with its barriers as they were meant
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build $(PKGS)
	GUCX_TEST_CROSS=1 $(GOTEST) -run '^TestListing$$' ./internal/mmio

byte-order: ## builds the libraries for s390x, whose bytes are in the other order
	CGO_ENABLED=0 GOARCH=s390x $(GO) build $(LIBS)

fuzz-short: ## every fuzz target for FUZZ inputs or time (2000x; 60s)
	.ci/fuzz $(FUZZ)

api: ## write docs/api, the exported declarations of each public package; a test compares them
	$(GO) run ./internal/apilist

perf-tables: ## write the tables of docs/perf/README.md from docs/perf/results; a test compares them
	$(GO) run ./internal/perftable

arm64: ## tests with -short on an emulated arm64 machine with pages of 4 and of 16 KiB, where LAB has one
	.ci/arm64 $(PKGS)
	.ci/arm64 --16k $(PKGS)

lab: ## tests of verbs, of rc and of ud on rxe, the device of the kernel, in virtual machines, where LAB has one; 20 minutes
	.ci/lab

ucx: ## ucxpeer against the UCX that is installed, or that in the folder UCX_LIB, in all roles; skips with its reason where there is none
	@$(if $(UCX_LIB),GUCX_TEST_UCX_LIB=$(UCX_LIB)) .ci/ucx

storm: ## peers of a long-lived server are killed, come and go, and lose memory under transfers, 1,000 times; an hour
	GUCX_TEST_SOAK=1 $(GO) test -run '^Test(Storm|Churn|Revoke)' -count 1 -timeout 3h -v ./uct/self ./uct/sm ./uct/tcp ./uct/ib/verbs/softhca ./ucp

kills: ## servers of examples/kv are killed and restarted under load, 200 times, and what clients saw is checked; five minutes
	GUCX_TEST_SOAK=1 $(GO) test -run '^TestKills' -count 1 -timeout 1h -v ./examples/kv/kvstore

idle: ## CPU time of idle workers with peers and after them, over each transport, 10 s each; 25 minutes
	GUCX_TEST_SOAK=1 GUCX_UCP_IDLE=10 $(GO) test -run '^TestIdle' -count 1 -timeout 1h -v ./ucp

hostile: ## what an honest client notices while others flood its server: a table of echoes, memory and CPU time; six minutes
	GUCX_TEST_SOAK=1 $(GO) test -run '^TestPests' -count 1 -timeout 1h -v ./ucp

soak: ## all tests, those that repeat what only chance shows many times; hours
	GUCX_TEST_SOAK=1 $(GO) test -timeout 6h $(PKGS)

sweep: ## the tests that leave out what is like something else, with all of it; three minutes
	.ci/sweep

MUTANTS ?= 40
SEED    ?= 1

mutate: ## change the package PKG in MUTANTS places, chosen by SEED, and list the changes that its tests, and those of USERS, do not notice; IDS=3,12-40 runs only these
	$(GO) run ./internal/mutate -pkg $(PKG) -users "$(USERS)" -n $(MUTANTS) -seed $(SEED) -ids "$(IDS)"

bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

bench-smoke: ## every benchmark once, so that none rots
	@.ci/quiet $(GOTEST) -run '^$$' -bench . -benchtime 1x $(sort $(dir $(addprefix ./,$(shell git grep -l '^func Benchmark' -- '*_test.go'))))
