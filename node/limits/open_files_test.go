package limits

import "testing"

func TestConnectionsFitTheLimitOfFiles(t *testing.T) {
	f := func(files uint64, clients, calls int, want Connections) {
		t.Helper()
		if got := (Connections{clients, calls, mostIdle}).within(files); got != want {
			t.Errorf("%d files: %+v, want %+v", files, got, want)
		}
	}
	f(0, 8192, 2048, Connections{8192, 2048, 4096})
	f(1<<63, 8192, 2048, Connections{8192, 2048, 4096})
	f(65536, 8192, 2048, Connections{8192, 2048, 4096})
	f(65536, 50000, 65536, Connections{32640, 16320, 4096})
	f(1024, 8192, 2048, Connections{384, 192, 192})
	f(1024, 100, 100, Connections{100, 100, 192})
	f(256, 8192, 2048, Connections{64, 32, 32})
	f(64, 8192, 2048, Connections{16, 16, 8})
	for files := uint64(minFiles); files <= 1<<20; files += 1 + files/8 {
		s := Connections{1 << 20, 1 << 20, 1 << 20}.within(files)
		if own := int(files) - s.Clients - s.Calls - s.Idle; own < int(min(files/3, reservedFiles)) {
			t.Errorf("of %d files %d are left for the node's own", files, own)
		}
	}
	if checkFiles(0) != nil || checkFiles(minFiles) != nil || checkFiles(minFiles-1) == nil {
		t.Error("the least number of files is not held")
	}
}
