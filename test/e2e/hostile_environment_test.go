package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// proxy counts the requests that it gets.
func proxy(t *testing.T) (url string, asked func() int) {
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(502) })
	return r.server.URL, r.count
}

// environmentCases are about variables, the working directory, signals and the umask.
func environmentCases() []surrounding {
	var asked func() int
	return []surrounding{{
		name: "odd variables",
		before: func(t *testing.T, s *surrounded) {
			url, count := proxy(t)
			asked = count
			for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"} {
				s.env = append(s.env, name+"="+url)
			}
			s.env = append(s.env, "TZ=Nowhere/At_All", "HOME=", "USER=", "PATH=", "TMPDIR=/nowhere", "LANG=tlh_QQ.utf-7", "LC_ALL=\xff\xfe",
				"HOSTNAME=", "XDG_CONFIG_HOME=/nowhere", "SSL_CERT_FILE=/nowhere", "NOTIFY_SOCKET=/nowhere", "TERM=", "COLUMNS=-1", "GOMAXPROCS=1", "GODEBUG=netdns=cgo+2", "CARILLON_UNKNOWN=1")
		},
		after: func(t *testing.T, _ *surrounded) {
			if n := asked(); n != 0 {
				t.Errorf("the proxy of the environment was asked %d times", n)
			}
		},
	}, {
		name: "variables that end in a line feed",
		before: func(_ *testing.T, s *surrounded) {
			s.env = append(s.env, "CARILLON_SHARDS=4\n", "CARILLON_HTTP="+s.address+"\n", "CARILLON_LOG_LEVEL=debug\r\n", "CARILLON_CALLBACK_ALLOW=127.0.0.0/8\n",
				"CARILLON_DATA="+s.flags[3]+"\n", "CARILLON_AUTO_CREATE_TOPICS=true\n")
			s.data, s.flags = s.flags[3], nil
		},
	}, {
		name: "a working directory that is removed",
		before: func(_ *testing.T, s *surrounded) {
			s.arrange = func(cmd *exec.Cmd) { cmd.Dir = s.dir }
		},
		strike: func(t *testing.T, s *surrounded) {
			if err := os.RemoveAll(s.dir); err != nil {
				t.Fatal(err)
			}
		},
	}, {
		name: "a working directory that was removed before the start",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"sh", "-c", `cd "$0" && rmdir "$0" && exec "$@"`, s.dir}
		},
	}, {
		name: "signals that are ignored",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"env", "--ignore-signal=TERM,INT,HUP,PIPE,CHLD,URG,ALRM,PROF"}
		},
	}, {
		name: "signals that are blocked",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"env", "--block-signal=TERM,INT,HUP,PIPE,CHLD,URG,ALRM,PROF"}
		},
	}, {
		name: "no input",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"sh", "-c", `exec "$@" <&-`, "sh"}
		},
	}, {
		name: "a umask that lets everybody in",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"sh", "-c", `umask 000 && exec "$@"`, "sh"}
			s.flags = append(s.flags, "--audit-log", filepath.Join(s.dir, "audit.log"))
			s.flags[3] = filepath.Join(s.dir, "data")
		},
		after: func(t *testing.T, s *surrounded) {
			err := filepath.WalkDir(s.dir, func(name string, entry os.DirEntry, err error) error {
				if err != nil || name == s.dir {
					return err
				}
				if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s: %v", name, info.Mode())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		},
	}}
}

// TestHostileEnvironments: odd variables, directories and signals change nothing.
func TestHostileEnvironments(t *testing.T) {
	t.Parallel()
	for _, h := range environmentCases() {
		t.Run(h.name, h.run)
	}
}
