# Targets that need nothing but Go: check and what it is made of. What needs root,
# Debian packages or a lab says so and skips with its reason.

GO      ?= go
PKGS    ?= ./...
FUZZ    ?= 5000x
GOFILES  = $(shell git ls-files '*.go')
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help check fmt vet lint build test race cpus invariants checkptr cross fuzz-short storm bench bench-smoke

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: fmt vet lint build cross test race cpus invariants checkptr fuzz-short bench-smoke ## everything that must pass before a commit lands

fmt: ## fail if gofmt would change a file
	@bad=$$(gofmt -l $(GOFILES)); if [ -n "$$bad" ]; then echo "gofmt would change:"; echo "$$bad"; exit 1; fi

vet: ## go vet, on both architectures
	$(GO) vet $(PKGS)
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet $(PKGS)

lint: ## staticcheck
	$(STATICCHECK) $(PKGS)

build: ## the build: no cgo
	CGO_ENABLED=0 $(GO) build $(PKGS)

test: ## all tests, in random order
	$(GO) test -shuffle=on $(PKGS)

race: ## all tests under the race detector
	$(GO) test -race $(PKGS)

cpus: ## tests with 1, 2 and 4 processors; one processor finds spinning that does not yield
	$(GO) test -short -cpu 1,2,4 $(PKGS)

invariants: ## tests with the checks of broken invariants built in
	$(GO) test -short -tags invariants $(PKGS)

checkptr: ## tests with pointer arithmetic checked
	$(GO) test -short -gcflags=all=-d=checkptr $(PKGS)

cross: ## builds for other machines: arm64, and s390x for byte order
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build $(PKGS)
	CGO_ENABLED=0 GOARCH=s390x $(GO) build $(PKGS)

fuzz-short: ## every fuzz target for FUZZ inputs or time (5000x; 60s)
	.ci/fuzz $(FUZZ)

storm: ## kill -9 of 1,000 senders over shared memory; about a minute
	GUCX_SM_STORM=1000 $(GO) test -run '^TestStorm$$' -count 1 -v ./uct/sm

bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

bench-smoke: ## every benchmark once, so that none rots
	$(GO) test -run '^$$' -bench . -benchtime 1x $(PKGS) > /dev/null
