package main

import (
	"strings"
	"syscall"
	"testing"
)

// A fault in how a command is called exits 2 with one line on stderr that names the fault and where
// help is.
func TestUsageFaultsExit2(t *testing.T) {
	tests := []struct{ args, want string }{
		{"frob", "unexpected argument frob"},
		{"serve --jion x", "unknown flag --jion"},
		{"serve --port 8080", "the address and port of the API is --http"},
		{"serve --join 127.0.0.1", "host:port"},
		{"serve --bootstrap-expect 3", "--join"},
		{"serve --replicas 0", "1–7"},
		{"serve --replicas 8", "1–7"},
		{"serve --name a/b", "name: "},
		{"serve --gossip 0.0.0.0:0", "--gossip-key"},
		{"serve --peer 0.0.0.0:0", "--peer-ca"},
		{"serve --peer-cert a.pem", "all three or none"},
		{"serve --gossip-key missing.key", "missing.key"},
		{"serve extra", "unexpected argument extra"},
		{"serve --shards many", `--shards: "many" is not a whole number`},
		{"sink --fail-rate half", `--fail-rate: "half" is not a number`},
		{"serve --shards 70000", "70000"},
		{"serve --log-level loud", "--log-level must be one of"},
		{"serve --callback-allow 10.0.0.1", `--callback-allow: "10.0.0.1" is not a network, such as 10.0.0.0/8`},
		{"serve --config missing.yaml", "missing.yaml"},
		{"serve --http 0.0.0.0:0", "--insecure-no-auth"},
		{"serve --admin 0.0.0.0:0", "not loopback"},
		{"sink --status 99", "status 99"},
		{"sink --listen 7780", `listen: "7780" is not host:port`},
		{"sink --status 0", "--status: 0 is not within 200 to 599"},
		{"token --nome x", "unknown flag --nome"},
		{"ctl", "expected one of"},
		{"ctl add", `expected "<topic>"`},
		{"ctl add t", "--delay or --at"},
		{"ctl add t --delay x --dry-run", "--delay: must be a duration"},
		{"ctl add t --every 10ms --dry-run", "--every: must be"},
		{"ctl add t --delay 1s --at 2030-01-01T00:00:00Z", "can't be used together"},
		{"ctl add t --delay 1s --payload hello", "not JSON"},
		{"ctl add t --delay 1s --header nocolon", "'Name: value'"},
		{"ctl patch t x", "nothing to change"},
		{"ctl get t x --url ftp://example", "ftp://example"},
		{"ctl dead redrive t", "--all"},
		{"ctl dead purge t x --all", "one of them"},
		{"ctl list t --limit -1", "--limit"},
		{"ctl list t --id x", "--id: finds a timer in all topics"},
		{"ctl topics put t", "--policy"},
		{"ctl topics set t", `expected "<key=value> ..."`},
		{"ctl topics set t history", "must be key=value"},
		{"ctl topics set t a=1 a=2", "given twice"},
		{"ctl topics set t retry=null retry.jitter=1", "whole and by its fields"},
		{"ctl topics set t retry.jitter=1 retry=null", "retry: is given whole and by its fields"},
		{"ctl topics set t per_key.rate=null per_key.rate.burst=1", "per_key.rate: is given whole and by its fields"},
		{"ctl topics set t per_key.rate.burst=1 per_key.rate.burst=2", "given twice"},
		{"ctl topics set t callback.headers.X=1", "headers change as a whole"},
		{"serve --test-clock", "--test-clock needs a value, as in --test-clock=2026-01-01T00:00:00Z"},
		{"serve --test-clock=yesterday", `"yesterday" is not a time: give now, or RFC 3339 with a zone, as in 2026-01-01T00:00:00Z`},
		{"serve --test-clock=0001-01-01T00:00:00Z", "out of 1970–9999"},
		{"ctl clock --advance -1h", "--advance=-1h"},
		{"ctl clock --advance=-1h", "the clock never goes back: for an earlier time start a node with another --data"},
		{"serve --data", "--data needs a value, as in --data"},
		{"serve --log-format", "--log-format needs a value, as in --log-format="},
		{"ctl add t --delay", "--delay needs a value, as in --delay 30m"},
		{"ctl pull t --max 1001", "1–1000"},
		{"ctl pull t --wait 61s", "0s–60s"},
		{"ctl ack", `expected "<receipt> ..."`},
		{"ctl drain", `expected "<node>"`},
		{"ctl shard one", `<number>: "one" is not a whole number`},
		{"ctl shards abc", `<number>: "abc" is not a whole number. The new number: the present one times 2, 4, 8, …; at most 4096 (`},
		{"ctl shards 010x", `"010x" is not a whole number`},
		{"ctl shards 0x8", `"0x8" is not a whole number`},
		{"ctl shards 99999999999999999999", `"99999999999999999999" is too large. The new number: the present one`},
		{"ctl shards -1", "<number>: -1 is less than nothing. The new number: the present one"},
		{"ctl replicas -1", "<number>: -1 is less than nothing. Copies of each timer, 1–7"},
		{"migrate redis", "--zset"},
		{"migrate redis --zset a --hash b --keys c", "can't be used together"},
		{"migrate redis --zset a --topic b/c", "--topic"},
		{"migrate asynq --redis http://127.0.0.1:6379", "--redis"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			got := carillon(t, "", nil, strings.Fields(tt.args)...)
			if got.code != exitUsage {
				t.Errorf("exit %d, want %d", got.code, exitUsage)
			}
			if !strings.Contains(got.err, tt.want) || !strings.Contains(got.err, "--help)") || strings.Count(got.err, "\n") != 1 {
				t.Errorf("stderr %q, want one line with %q and the way to help", got.err, tt.want)
			}
			if got.out != "" {
				t.Errorf("stdout %q, want none", got.out)
			}
		})
	}
}

func TestHelpIsShortAndEndsWithExamples(t *testing.T) {
	for _, args := range []string{"", "--help", "serve --help", "sink --help", "ctl --help", "ctl add --help", "ctl apply --help", "ctl topics export --help", "ctl cluster --help", "ctl drain --help", "token --help"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := carillon(t, "", nil, strings.Fields(args)...)
			if got.code != exitOK || got.err != "" {
				t.Fatalf("exit %d, stderr %q", got.code, got.err)
			}
			body, examples, ok := strings.Cut(got.out, "\nExamples:\n")
			if !ok || !strings.Contains(examples, "carillon ") {
				t.Errorf("no examples at the end:\n%s", got.out)
			}
			most := 50
			if args == "serve --help" {
				most = 90 // the contract has over thirty settings, and each is a line or two
			}
			if lines := strings.Count(body, "\n"); lines > most {
				t.Errorf("%d lines of help; that is not short", lines)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		got := carillon(t, "", nil, args)
		if got.code != exitOK || !strings.HasPrefix(got.out, "carillon ") || !strings.Contains(got.out, "go1.") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

// The first signal winds up and exits 0.
func TestSinkStopsOnSignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			p := start(t, "sink", "--listen", "127.0.0.1:0")
			p.line(t, "receiving on http://127.0.0.1:")
			p.signal(t, sig)
			if got := p.wait(t); got.code != exitOK || got.err != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSinkOnATakenPortExits1(t *testing.T) {
	p := start(t, "sink", "--listen", "127.0.0.1:0")
	_, address, _ := strings.Cut(p.line(t, "receiving on"), "http://")
	got := carillon(t, "", nil, "sink", "--listen", address)
	if got.code != exitFailure || !strings.Contains(got.err, address) || strings.Count(got.err, "\n") != 1 {
		t.Errorf("got %+v", got)
	}
}
