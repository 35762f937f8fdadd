package main

import "testing"

func TestByteSizes(t *testing.T) {
	f := func(text string, want int64, shown string) {
		t.Helper()
		if n, err := parseBytes(text); err != nil || n != want || bytesText(n) != shown {
			t.Errorf("%q: %d %s %v, want %d %s", text, n, bytesText(n), err, want, shown)
		}
	}
	f("0", 0, "0")
	f("1048576", 1<<20, "1MiB")
	f("4GiB", 4<<30, "4GiB")
	f("300 MiB", 300<<20, "300MiB")
	f("1536MiB", 1536<<20, "1536MiB")
	f("4G", 4<<30, "4GiB")
	f("1TB", 1e12, "976562500KiB")
	f("5kB", 5000, "5000")
	f("17B", 17, "17")
	for _, text := range []string{"", "GiB", "-1", "1.5GiB", "4 gib", "4GiBs", "0x10", "9999999TiB", "1e9", "4 G iB"} {
		if _, err := parseBytes(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
