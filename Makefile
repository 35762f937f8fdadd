# Go and make are all that is needed; `make help` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help run demo build docs dist package release rename-check lateness deploy-check s3-server zones test ci processes commands beside nodes turns raced raced-models raced-nodes models check sim mutants bench fuzz chaos soak soak-tests fmt clean

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -X main.release=$(VERSION) -X main.commit=$(COMMIT)

# Budget of each fuzz target: in `make ci`, and in `make fuzz`.
FUZZTIME_CI ?= 600ms
FUZZTIME    ?= 1m

GOLANGCI_LINT := bin/golangci-lint-v2.15.0
GOVULNCHECK   := bin/govulncheck-v1.8.0
DEADCODE      := bin/deadcode-v0.52.0
CYCLONEDX     := bin/cyclonedx-gomod-v1.10.0
NFPM          := bin/nfpm-v2.43.4
HELM          := bin/helm-v3.22.0
CRANE         := bin/crane-v0.22.1
S3SERVER      := bin/versitygw-v1.8.0

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build and run a durable node on http://127.0.0.1:7700, data in ./carillon-data
	./bin/carillon serve --data ./carillon-data

demo: build ## three nodes, a receiver, load, and a kill -9 of the busiest leader while you watch (under a minute)
	./bin/carillon demo

build: ## build ./bin/carillon
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/carillon ./cmd/carillon

docs: ## the reference of the API as one page, from docs/openapi.yaml: bin/openapi.html (Node.js)
	./scripts/openapi.sh page bin/openapi.html

dist: $(CYCLONEDX) ## static binaries, checksums, lists of what is in them and completions, into bin/dist
	VERSION=$(VERSION) COMMIT=$(COMMIT) CYCLONEDX=$(CYCLONEDX) ./scripts/dist.sh

package: dist $(NFPM) ## Debian packages, into bin/dist
	VERSION=$(VERSION) ./scripts/package.sh $(NFPM)

zones: ## take the time zones of the installed Go into timer/recurrence; all that a release knows
	./scripts/zones.sh

release: $(CYCLONEDX) $(NFPM) $(HELM) $(CRANE) ## all that is published of this commit, into bin/release, built twice and checked (Node.js, Python; minutes): RELEASE=v1.0.0 MODULE=example.com/carillon
	CYCLONEDX=$(CYCLONEDX) NFPM=$(NFPM) HELM=$(HELM) CRANE=$(CRANE) ./scripts/release.sh

rename-check: ## the Go module gets another path in a copy of the sources, and all is built there
	./scripts/rename-check.sh

deploy-check: build ## the files in deploy/, by the tools that read them, as far as they are installed
	./scripts/deploy-check.sh bin/carillon

# The Go client is a module of its own, so that ./... passes it over.
CLIENT := carillon/client

# All packages, those first whose tests take longest, so that no processor waits at the end.
SLOWEST := ./test/e2e ./node ./test/sim ./cmd/carillon ./shard ./ring
EVERY   = $(SLOWEST) $(filter-out $(SLOWEST),$(shell go list -f '{{.Dir}}' ./... | sed 's|^$(CURDIR)|.|')) $(CLIENT)

# The race detector needs a C compiler, and makes tests three to ten times as slow. It has nothing to find where one goroutine does all: in the
# simulator, in the packages of PURE, and in the tests of ALONE. Of MODELS it runs the short tests, but those of STEPPED, of which one goroutine
# makes each step; `models` runs all of them at full length. The processes that ./test/e2e and ./cmd start are built without it: they start ten times
# as slowly with it, and what runs in them is tested under it by its own package. `make soak-tests` has it everywhere. The tests of the root are part of `make check`.
RACE   := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
MODELS := ./shard ./ring ./wal
PURE   := ./wheel ./timer ./timer/% ./shard/record ./shard/scheduler ./shard/table ./shard/table/% ./shard/wire ./internal/order ./internal/backup \
	./transport/api/events ./transport/api/internal/% ./transport/callback/address ./transport/callback/signing ./transport/callback/slots ./transport/console
TESTED  = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... | sed 's|^$(CURDIR)|.|')
RACED   = ./node ./transport/api $(filter-out . ./node ./transport/api $(MODELS) $(PURE) ./test/% ./cmd/%,$(TESTED)) $(CLIENT)
PLAIN   = $(filter-out ./test/e2e ./test/sim ./test/sim/mutants ./cmd/carillon,$(filter $(PURE) ./test/% ./cmd/%,$(TESTED)))
STEPPED := ^Test(ManyNodesJoin|PlanDividesShards|PlanOfManyNodes|RepairsComeFirst|ManyOfOneKey|FoundingCrash|ReplayTakesTimeByEntry|DurableFrameIsNeverCut|DamageInUncleanTail)$$
# Tests of ./node with one client: thousands of requests or of starts, one after the other.
ALONE := ^Test(CrashMatrixOfOneNode|DamageAtRestOfEveryFile|NewTopicIsKnownEverywhere|RepeatedLongAfterTheEnd|RepeatedPutIsNotCalledTwice|TenThousandIdleTopicsVanish|ThousandTopics)$$

# Without debug information test binaries link in half the time; a process under the race detector waits a second at its end by default.
GOTEST := env GORACE=atexit_sleep_ms=10 go test -shuffle=on -ldflags=-w -timeout 20m

# Runs of the simulator, and those that look for what 500 of them must come to anyway.
DRAWN := ^TestSeeds(|Ordeals|Ailments|ReplicaFaults)$$

# Tests that hold the longest turn against a bound run alone, last: beside others they measure who else had the processor and its caches, and try
# again and again.
TURNS := ^TestLongestTurn

# Tests of real processes: those that measure times run alone, and then all others, of which so many wait side by side. Flags stand before
# packages: go test takes a package behind a flag for an argument of the test. In `make ci` most of what runs beside them has the lowest priority.
SIDE_BY_SIDE := -parallel 4
ALL_BENEATH  := -parallel 6
# Tests of nodes in one process, which wait for each other's timeouts.
WAITING := -parallel 6

# Tests have their files in memory where there is enough of it, and in TMPDIR where that is set.
test ci: export TMPDIR := $(or $(TMPDIR),$(shell ./scripts/memory-dir.sh),/tmp)

# Three packages at once, as those of processes and nodes mostly wait.
test: ## the short tests of each package, 20 simulated runs (two and a half minutes on two free cores, the first compilation included; longer on a busy machine)
	$(GOTEST) -vet off -short -p 3 $(SIDE_BY_SIDE) $(EVERY)

# Tests of processes mostly wait, so that all else runs beside them, at the lowest priority: first what uses no disk, beside those that measure times.
# Tests of nodes wait, too: they begin when those of processes are over, before the rest of what runs at the lowest priority, so that no processor waits.
ci: ## everything that must hold at each landing: checks, all tests at full length, under the race detector where it can find something, 500 simulated runs, each fuzz target (twelve minutes on two free cores)
	$(MAKE) -j 4 processes commands beside nodes
	$(MAKE) turns

processes:
	$(GOTEST) -vet off $(ALL_BENEATH) ./test/e2e

commands:
	$(GOTEST) -vet off $(SIDE_BY_SIDE) ./cmd/carillon

nodes: processes commands
	$(MAKE) raced-nodes

beside:
	nice -n 19 $(MAKE) check
	nice -n 19 $(MAKE) models
	nice -n 19 $(MAKE) raced-models
	nice -n 19 ./scripts/fuzz.sh $(FUZZTIME_CI) blind

raced: raced-models raced-nodes ## the tests of what has goroutines, under the race detector
	$(if $(RACE),,@echo "no C compiler: the tests run without the race detector")

raced-models:
	$(GOTEST) -vet off $(RACE) -short -skip '$(STEPPED)' $(MODELS)

raced-nodes:
	$(GOTEST) -vet off $(RACE) -skip '$(ALONE)' -p 3 $(WAITING) $(RACED)

turns:
	$(GOTEST) -vet off -run '$(TURNS)' ./shard

models: ## what one goroutine does: 500 simulated runs, shard, ring and wal at full length, and packages without goroutines
	$(GOTEST) -vet off -run '^TestSeeds$$' ./test/sim -sim.seeds=500
	$(GOTEST) -vet off -skip '$(DRAWN)|$(TURNS)' ./test/sim $(MODELS) $(PLAIN)
	$(GOTEST) -vet off -run '$(ALONE)|^TestCost' ./node ./transport/api # the race detector would be measured, too

check: $(GOLANGCI_LINT) $(GOVULNCHECK) $(DEADCODE) ## formatting, lint, import rules, dead code, known vulnerabilities
	./scripts/check.sh $(GOLANGCI_LINT) $(GOVULNCHECK) $(DEADCODE)

bench: build ## the standard measurements beside their yardsticks, into bin/bench.txt (under half an hour)
	./test/bench/run.sh ./bin/carillon bin/bench.txt

lateness: build ## how late timers fire, at several rates and under five conditions, into docs/lateness.md (about ten minutes on a quiet machine; strace for one of them)
	./scripts/lateness.sh bin/carillon docs/lateness.md

sim: ## the simulated cluster: SEED=n replays one run, SEEDS=n runs so many from FIRST=n on (default: 500, and as many more as fit 45 s); PROFILE=restless, say, makes each dense with one kind of trouble
	go test ./test/sim -count 1 -timeout 0 -run 'TestSeeds$(if $(PROFILE),$$)' -v $(if $(SEED),-sim.seed=$(SEED)) $(if $(SEEDS),-sim.seeds=$(SEEDS)) $(if $(FIRST),-sim.first=$(FIRST)) $(if $(PROFILE),-sim.profile=$(PROFILE))

mutants: ## deliberate bugs, each of which the tests that it names must find (half an hour): ONLY=regexp names some, ALL=1 says how many seeds find each
	go run ./test/sim/mutants $(if $(ONLY),-run '$(ONLY)') $(if $(ALL),-all)

fuzz: ## each fuzz target for FUZZTIME=1m
	./scripts/fuzz.sh $(FUZZTIME)

# How often `make chaos` does all, and how long `make soak` goes on.
ROUNDS ?= 1
FOR    ?= 1h

chaos: ## real processes: kills, pauses, cut networks, restarts, wrong clocks, slow, failing and full disks; ends with a table (about half an hour for each of ROUNDS=1; root and strace for all of it)
	CARILLON_E2E_LONG=1 CARILLON_E2E_CLUSTER_KILLS=$$((20 * $(ROUNDS))) CARILLON_E2E_CLUSTER_RATE=1000 CARILLON_E2E_CLUSTER_ROLLS=$$((2 * $(ROUNDS))) \
	CARILLON_E2E_CLUSTER_PAUSES=$$((4 * $(ROUNDS))) CARILLON_E2E_CLUSTER_PAUSE=15 CARILLON_E2E_CLUSTER_PARTITIONS=$$((4 * $(ROUNDS))) \
	CARILLON_E2E_CLUSTER_CHAOS=$(ROUNDS) CARILLON_E2E_CLUSTER_MOVES=$$((10 * $(ROUNDS))) CARILLON_E2E_CLUSTER_GROW=5 \
	CARILLON_E2E_CLUSTER_KEPT=100000 CARILLON_E2E_CLUSTER_MISSED=200000 \
	go test -count 1 -timeout 0 -v -run 'TestCluster|TestWaiting|TestStorageFailure|TestDisk|TestKill|TestClock' ./test/e2e

soak: ## one cluster under load for FOR=1h, all faults in random order, checked every eight; ends with a table (SEED=n draws the same again)
	CARILLON_E2E_CLUSTER_SIEGE=$(FOR) $(if $(SEED),CARILLON_E2E_SEED=$(SEED)) go test -count 1 -timeout 0 -v -run 'TestClusterChaos$$' ./test/e2e

soak-tests: s3-server $(HELM) ## the long tests: hours of kills, herds, storms, flips, and the models at full length
	CARILLON_SOAK=1 CARILLON_E2E_LONG=1 CARILLON_E2E_KILLS=200 CARILLON_E2E_HERD=50000 CARILLON_E2E_STORM=20000 CARILLON_E2E_NASTY=5000 \
	CARILLON_E2E_FLIPS=500 CARILLON_E2E_SNAPSHOTS=20 CARILLON_E2E_MILLION=1 HELM=$(abspath $(HELM)) \
	go test $(RACE) -shuffle=on -count 1 -timeout 0 -v ./... $(CLIENT)
	./scripts/fuzz.sh $(FUZZTIME)

fmt: ## format the code
	gofmt -w .

clean: ## remove what the other targets built (never ./carillon-data)
	rm -rf bin

s3-server: $(S3SERVER) ## the S3 server with which the tests of backups to S3 run; without it they are skipped

# Tools are built once, with their versions in their names, and kept in ./bin.
$(GOLANGCI_LINT):
	@./scripts/tool.sh github.com/golangci/golangci-lint/v2/cmd/golangci-lint $@

$(GOVULNCHECK):
	@./scripts/tool.sh golang.org/x/vuln/cmd/govulncheck $@

$(DEADCODE):
	@./scripts/tool.sh golang.org/x/tools/cmd/deadcode $@

$(CYCLONEDX):
	@./scripts/tool.sh github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod $@

$(NFPM):
	@./scripts/tool.sh github.com/goreleaser/nfpm/v2/cmd/nfpm $@

$(HELM):
	@./scripts/tool.sh helm.sh/helm/v3/cmd/helm $@

$(CRANE):
	@./scripts/tool.sh github.com/google/go-containerregistry/cmd/crane $@

$(S3SERVER):
	@./scripts/tool.sh github.com/versity/versitygw/cmd/versitygw $@
