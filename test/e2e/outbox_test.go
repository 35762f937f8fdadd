package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

// postgres runs a Postgres with a database shop, in a directory of its own. It refuses to be
// root's: root lets another user run it. Without one the test is skipped.
func postgres(t *testing.T) (address string) {
	t.Helper()
	notShort(t)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("NOT CHECKED: Postgres is not installed (Debian: apt-get install postgresql)")
	}
	bin := filepath.Dir(slices.Max(found))
	dir, err := os.MkdirTemp("", "carillon-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { awaitRemoved(dir) })
	as := func(cmd *exec.Cmd) { cmd.Dir = dir }
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Skipf("NOT CHECKED: root cannot run Postgres: %v", err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		as = func(cmd *exec.Cmd) {
			cmd.Dir, cmd.SysProcAttr.Credential = dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	made := beginIn(t, as, []string{bin + "/initdb", "-D", dir + "/data", "-U", "shop", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"})
	if code := made.awaitExit(t, clientLimit); code != 0 {
		t.Fatalf("initdb: exit %d: %s", code, made.stderr)
	}
	address = freeport.Address(t)
	_, port, _ := strings.Cut(address, ":")
	server := beginIn(t, as, []string{bin + "/postgres", "-D", dir + "/data", "-h", "127.0.0.1", "-p", port, "-k", "", "-F"})
	t.Cleanup(func() {
		server.signal(t, syscall.SIGINT) // ends its sessions, and waits for its processes
		server.awaitExit(t, clientLimit)
	})
	poll(t, clientLimit, "Postgres makes a database", func() bool {
		return exec.Command("createdb", "-h", "127.0.0.1", "-p", port, "-U", "shop", "shop").Run() == nil
	})
	return address
}

// TestOutbox: each committed row makes one timer, that fires once, also where a relay is killed
// after the cluster has added timers and before it has committed. A row that is refused stays, and
// holds up no other row, also where the cluster refuses a batch as a whole.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		language string
		build    func(*testing.T) []string
	}{{"go", goOutbox}, {"nodejs", nodeOutbox}} {
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			address := postgres(t)
			relay := c.build(t)
			database := "postgres://shop@" + address + "/shop?sslmode=disable"
			sql := func(text string) string {
				return strings.TrimSpace(inFolder(t, "../../docs/guides/outbox", nil, "psql", "-qAt", "-v", "ON_ERROR_STOP=1", database, "-c", text))
			}
			inFolder(t, "../../docs/guides/outbox", nil, "psql", "-q", "-v", "ON_ERROR_STOP=1", database, "-f", "schema.sql")
			rec := newReceiver(t, nil)
			p := serve(t, t.TempDir())
			m := newClient(p)
			m.must(t, 201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.url()))
			const now, later = 700, 600
			const insert = `INSERT INTO outbox (topic, id, due, payload) SELECT 'orders', '%s-' || n, now() + interval '%s', json_build_object('n', n) FROM generate_series(1, %d) n`
			sql(fmt.Sprintf(insert, "now", "0 s", now))
			sql(fmt.Sprintf(insert, "later", "1 day", later))
			sql("BEGIN; " + fmt.Sprintf(insert, "undone", "0 s", 10) + "; ROLLBACK")
			sql("INSERT INTO outbox (topic, id, due, payload) VALUES ('orders', 'never', now() + interval '100 years', '1')")

			var first *process
			begun, relayed := make(chan struct{}), atomic.Int32{}
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-begun
				if r.URL.Path == "/v1/topics/orders/batch" && relayed.Add(1) == 2 {
					defer first.kill() // after the cluster has added them, and before the relay has its answer
				}
				request, _ := http.NewRequestWithContext(r.Context(), r.Method, p.url+r.URL.RequestURI(), r.Body)
				request.Header = r.Header.Clone()
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				defer answer.Body.Close()
				body, _ := io.ReadAll(answer.Body)
				if relayed.Load() < 2 {
					w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
					w.WriteHeader(answer.StatusCode)
					_, _ = w.Write(body)
				}
			}))
			defer proxy.Close()
			first = begin(t, relay, "DATABASE_URL="+database, "CARILLON_URL="+proxy.URL)
			close(begun)
			first.awaitExit(t, clientLimit)
			if left := sql("SELECT count(*) FROM outbox"); left != fmt.Sprint(now+later+1-500) {
				t.Fatalf("after the kill %s rows are left", left)
			}
			poll(t, clientLimit, "a timer of the killed relay has fired", func() bool { return rec.called("orders", "now-700") == 1 })

			var relays []*process
			for range 3 {
				relays = append(relays, begin(t, append(relay, "--once"), "DATABASE_URL="+database, "CARILLON_URL="+p.url))
			}
			for _, r := range relays {
				if code := r.awaitExit(t, clientLimit); code != 0 {
					t.Fatalf("a relay exits %d: %s", code, r.stderr)
				}
			}
			count := map[string]int{}
			for _, r := range relays {
				for line := range strings.Lines(r.stdout.String()) {
					what, n, _ := strings.Cut(strings.TrimSpace(line), ": ")
					rows, _ := strconv.Atoi(n)
					count[what] += rows
				}
			}
			if count["rows sent"] != now+later-500 || count["rows refused"] != 1 {
				t.Errorf("the relays counted %v", count)
			}
			if left := sql("SELECT id || ' ' || (error LIKE '%horizon%') FROM outbox"); left != "never true" {
				t.Errorf("left are %q", left)
			}
			poll(t, clientLimit, "each has fired", func() bool {
				for n := range now {
					if rec.called("orders", fmt.Sprint("now-", n+1)) < 1 {
						return false
					}
				}
				return true
			})
			var topic struct {
				Counts struct{ Scheduled, Ready, Leased, Done, Dead int } `json:"counts"`
			}
			poll(t, clientLimit, "nothing runs any more", func() bool {
				m.must(t, 200, "GET", "/v1/topics/orders", "").decode(t, &topic)
				return topic.Counts.Leased == 0 && topic.Counts.Ready == 0
			})
			if topic.Counts.Scheduled != later || topic.Counts.Dead != 0 {
				t.Errorf("the topic has %+v", topic.Counts)
			}
			for n := range now {
				if id := fmt.Sprint("now-", n+1); rec.called("orders", id) != 1 {
					t.Errorf("%s was called %d times", id, rec.called("orders", id))
				}
			}
			if rec.called("orders", "undone-1") != 0 || m.read(t, "orders", "later-600").DueMs < time.Now().Add(23*time.Hour).UnixMilli() {
				t.Error("a timer is not that of its row")
			}

			const row = `INSERT INTO outbox (topic, id, due, payload) VALUES ('%s', '%s', '%s', %s);`
			tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
			sql(fmt.Sprintf(row, "no topic", "nowhere", tomorrow, "'1'") + fmt.Sprintf(row, "orders", "deep", tomorrow, "(repeat('[', 70) || repeat(']', 70))::json"))
			sql(fmt.Sprintf(`INSERT INTO outbox (topic, id, due, payload) SELECT 'orders', 'big-' || n, '%s', to_json(repeat('x', 100000)) FROM generate_series(1, 100) n`, tomorrow))
			sql("DO $$ BEGIN " + fmt.Sprintf(row, "orders", "without-end", "infinity", "'1'") + " EXCEPTION WHEN check_violation THEN NULL; END $$")
			last := begin(t, append(relay, "--once"), "DATABASE_URL="+database, "CARILLON_URL="+p.url)
			if code := last.awaitExit(t, clientLimit); code != 0 {
				t.Fatalf("the relay exits %d: %s", code, last.stderr)
			}
			if left := sql("SELECT string_agg(id || ' ' || (error IS NOT NULL), ', ' ORDER BY seq) FROM outbox"); left != "never true, nowhere true, deep true" {
				t.Errorf("left are %q", left)
			}
			if m.must(t, 200, "GET", "/v1/topics/orders", "").decode(t, &topic); topic.Counts.Scheduled != later+100 {
				t.Errorf("the topic has %+v", topic.Counts)
			}
		})
	}
}

func goOutbox(t *testing.T) []string {
	program := filepath.Join(t.TempDir(), "outbox")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = "../../docs/guides/outbox/golang"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{program}
}

func nodeOutbox(t *testing.T) []string {
	needTypeScript(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "outbox.mjs"), readFile(t, "../../docs/guides/outbox/nodejs/outbox.mjs"))
	writeFile(t, filepath.Join(dir, "package.json"), readFile(t, "../../docs/guides/outbox/nodejs/package.json"))
	packTypeScript(t, dir)
	cmd := exec.Command("bash", "-c", "npm install --prefer-offline --no-audit --no-fund --silent ./carillon-client-*.tgz")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("NOT CHECKED: the package pg cannot be fetched: %v %s", err, out)
	}
	return []string{"node", filepath.Join(dir, "outbox.mjs")}
}
