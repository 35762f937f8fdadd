package node

import "testing"

func TestConnectionsFitTheLimitOfFiles(t *testing.T) {
	f := func(files uint64, wanted, want int) {
		t.Helper()
		if got := connectionsWithin(files, wanted); got != want {
			t.Errorf("%d files: %d of %d connections, want %d", files, got, wanted, want)
		}
	}
	f(0, 8192, 8192)
	f(1<<63, 8192, 8192)
	f(65536, 8192, 8192)
	f(65536, 50000, 32640)
	f(1024, 8192, 384)
	f(1024, 100, 100)
	f(256, 8192, 16)
	f(64, 8192, 16)
}
