package node

import "testing"

func TestConnectionsFitTheLimitOfFiles(t *testing.T) {
	f := func(files uint64, clients, calls int, want fileShares) {
		t.Helper()
		if got := (fileShares{clients, calls, mostIdle}).within(files); got != want {
			t.Errorf("%d files: %+v, want %+v", files, got, want)
		}
	}
	f(0, 8192, 2048, fileShares{8192, 2048, 4096})
	f(1<<63, 8192, 2048, fileShares{8192, 2048, 4096})
	f(65536, 8192, 2048, fileShares{8192, 2048, 4096})
	f(65536, 50000, 65536, fileShares{32640, 16320, 4096})
	f(1024, 8192, 2048, fileShares{384, 192, 192})
	f(1024, 100, 100, fileShares{100, 100, 192})
	f(256, 8192, 2048, fileShares{64, 32, 32})
	f(64, 8192, 2048, fileShares{16, 16, 8})
	for files := uint64(minFiles); files <= 1<<20; files += 1 + files/8 {
		s := fileShares{1 << 20, 1 << 20, 1 << 20}.within(files)
		if own := int(files) - s.clients - s.calls - s.idle; own < int(min(files/3, reservedFiles)) {
			t.Errorf("of %d files %d are left for the node's own", files, own)
		}
	}
	if checkFiles(0) != nil || checkFiles(minFiles) != nil || checkFiles(minFiles-1) == nil {
		t.Error("the least number of files is not held")
	}
}
