package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/transport/api/web"
)

func dirOfMode(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, mode); err != nil { // Mkdir goes by the umask
		t.Fatal(err)
	}
	return dir
}

// All that is wrong is said at once, each fault with its setting.
func TestConfigFaults(t *testing.T) {
	open := func(c *Config) { c.HTTP, c.AuthFile = "0.0.0.0:7700", "tokens.yaml" }
	tests := []struct {
		name string
		edit func(*Config)
		want []string // a part of each line of the error; none: it is good
	}{
		{"defaults", func(*Config) {}, nil},
		{"shards", func(c *Config) { c.Shards = 65536 }, []string{"shards: "}},
		{"workers", func(c *Config) { c.Workers = -1 }, []string{"workers: "}},
		{"topics", func(c *Config) { c.TopicIdle = time.Second - 1 }, []string{"topic-idle: "}},
		{"addresses", func(c *Config) { c.HTTP, c.Peer, c.Gossip = "7700", "127.0.0.1:70000", "127.0.0.1:x" }, []string{"http: ", "peer: ", "gossip: "}},
		{"open to others", func(c *Config) { c.HTTP, c.Peer, c.Gossip = ":7700", "10.0.0.1:7701", "[::]:7702" }, []string{"--auth-file", "--peer-ca", "--gossip-key"}},
		{"open to others on purpose", func(c *Config) { c.HTTP, c.Peer, c.Gossip, c.Insecure = ":7700", "10.0.0.1:7701", "[::]:7702", true }, nil},
		{"http alone open, guarded", open, nil},
		{"http open, clients with certificates", func(c *Config) { c.HTTP, c.HTTPCert, c.HTTPKey, c.HTTPClientCA = "0.0.0.0:7700", "c", "k", "a" }, nil},
		{"half of TLS", func(c *Config) { c.HTTPCert = "c" }, []string{"http-cert, http-key: "}},
		{"clients with certificates in clear", func(c *Config) { c.HTTPClientCA = "a" }, []string{"http-client-ca: "}},
		{"little memory", func(c *Config) { c.MemoryLimit = 1 << 20 }, []string{"memory-limit: "}},
		{"connections", func(c *Config) { c.MaxConnections = 5 }, []string{"max-connections: "}},
		{"loopback by other names", func(c *Config) { c.HTTP, c.Peer, c.Gossip = "localhost:0", "[::1]:0", "127.1.2.3:0" }, nil},
		{"advertise with a port", func(c *Config) { c.Advertise = "n1:7701" }, []string{"advertise: "}},
		{"advertise nowhere", func(c *Config) { c.Advertise = "0.0.0.0" }, []string{"advertise: "}},
		{"advertise", func(c *Config) { c.Advertise = "2001:db8::1" }, nil},
		{"name", func(c *Config) { c.Name, c.Zone = "-n1", "a b" }, []string{"name: ", "zone: "}},
		{"long name", func(c *Config) { c.Name = strings.Repeat("n", 64) }, []string{"name: "}},
		{"longest name", func(c *Config) { c.Name = strings.Repeat("n", 63) }, nil},
		{"join", func(c *Config) { c.Join = []string{"n1:7702", "n2", ":7702", "n3:0"} }, []string{"join: ", "join: ", "join: "}},
		{"lists with spaces", func(c *Config) {
			c.Join, c.HTTPHosts, c.CORSOrigins = []string{"n1:7702", " n2:7702"}, []string{"a ", " b"}, []string{" https://a"}
		}, nil},
		{"found alone, join none", func(c *Config) { c.BootstrapExpect = 3 }, []string{"bootstrap-expect: "}},
		{"found together", func(c *Config) { c.BootstrapExpect, c.Join = 3, []string{"n1:7702", "n2:7702", "n3:7702"} }, nil},
		{"bounds", func(c *Config) { c.BootstrapExpect, c.Replicas, c.Join = 100, 8, []string{"n1:1"} }, []string{"bootstrap-expect: ", "replicas: "}},
		{"negative", func(c *Config) { c.BootstrapExpect, c.Replicas = -1, -1 }, []string{"bootstrap-expect: ", "replicas: "}},
		{"half a certificate", func(c *Config) { c.PeerCert, c.PeerKey = "a", "b" }, []string{"all three or none"}},
		{"a directory of anybody", func(c *Config) { c.DataDir = dirOfMode(t, 0o777) }, []string{"data: "}},
		{"a directory of anybody, with the sticky bit", func(c *Config) { c.DataDir = dirOfMode(t, 0o777|os.ModeSticky) }, []string{"data: "}},
		{"a directory of a group", func(c *Config) { c.DataDir = dirOfMode(t, 0o775) }, nil}, // as Kubernetes makes it
		{"backups", func(c *Config) { c.BackupTo, c.BackupEvery, c.BackupKeep = "s3://a/b", "30 2 * * *", 7 }, nil},
		{"backups to nowhere", func(c *Config) { c.BackupTo, c.BackupEvery, c.BackupKeep = "/backups", "1h", 10_001 }, []string{"backup-to: ", "backup-every: ", "backup-keep: "}},
		{"backups at times and to nowhere", func(c *Config) { c.BackupEvery, c.BackupKeep = "1 * * * *", 7 }, []string{"backup-every: needs --backup-to", "backup-keep: needs --backup-to"}},
		{"backups never", func(c *Config) { c.BackupEvery = "0 0 30 2 *" }, []string{"backup-every: "}},
		{"no such key", func(c *Config) { c.GossipKeyFile = "/nowhere/key" }, []string{"gossip-key: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			tt.edit(&c)
			err := c.withDefaults().validate()
			if len(tt.want) == 0 {
				testkit.Must(t, err)
				return
			}
			if err == nil {
				t.Fatal("no fault was found")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d faults, want %d: %v", len(lines), len(tt.want), err)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("fault %d is %q, want %q in it", i+1, lines[i], want)
				}
			}
		})
	}
}

// Guards that are there make an address that others can reach acceptable.
func TestConfigTakesGuardedAddresses(t *testing.T) {
	key := filepath.Join(t.TempDir(), "gossip.key")
	testkit.Must(t, os.WriteFile(key, []byte(strings.Repeat("ab", 16)+"\n"), 0o600))
	c := Config{
		HTTP: "0.0.0.0:7700", Gossip: "0.0.0.0:7702", Peer: "0.0.0.0:7701",
		Credentials: Credentials{AuthFile: "tokens.yaml", GossipKeyFile: key, PeerCert: "c", PeerKey: "k", PeerCA: "a"},
	}
	if err := c.withDefaults().validate(); err != nil {
		t.Error(err)
	}
}

func TestNameOfHost(t *testing.T) {
	for host, want := range map[string]string{
		"web-1.example": "web-1.example", "": "node", "---": "node", "_a": "a", "höst 1": "h-st-1", strings.Repeat("x", 80): strings.Repeat("x", 63),
	} {
		if got := nameOf(host); got != want || !web.ValidNode(got) {
			t.Errorf("nameOf(%q) = %q, want %q", host, got, want)
		}
	}
}

func TestNamesOfTheAPI(t *testing.T) {
	f := func(c Config, want ...string) {
		t.Helper()
		if got := c.hosts(); !slices.Equal(got, want) {
			t.Errorf("http %q advertise %q name %q hosts %v: %v, want %v", c.HTTP, c.Advertise, c.Name, c.HTTPHosts, got, want)
		}
	}
	f(Config{HTTP: "127.0.0.1:7700", Name: "box"})
	f(Config{HTTP: "localhost:7700", Name: "box", Advertise: "box.example"})
	f(Config{HTTP: "[::1]:7700", Name: "box", HTTPHosts: []string{"timers.example"}}, "timers.example")
	f(Config{HTTP: "0.0.0.0:7700", Name: "n1", Advertise: "10.0.0.1"}, "10.0.0.1", "n1")
	f(Config{HTTP: ":7700", Name: "n1", Advertise: "2001:db8::1", HTTPHosts: []string{"timers"}}, "timers", "[2001:db8::1]", "n1")
	f(Config{HTTP: "n1.internal:7700", Name: "n1"}, "n1.internal", "n1")
	c := Config{HTTPHosts: []string{"fine", "not fine", "a@b"}}.withDefaults()
	if err := c.validate(); err == nil || strings.Count(err.Error(), "http-host: ") != 2 {
		t.Error(err)
	}
	c = Config{CORSOrigins: []string{"https://fine.example", "*", "https://fine.example/"}}.withDefaults()
	if err := c.validate(); err == nil || strings.Count(err.Error(), "cors-origin: ") != 2 {
		t.Error(err)
	}
}
