package web

import (
	"testing"
	"unsafe"
)

// TestURLCacheKeepsNoBody: a URL that is read points into the body of its request, which may have
// 8 MiB. The cache keeps the URL alone.
func TestURLCacheKeepsNoBody(t *testing.T) {
	var c URLCache
	body := []byte(`{"callback":{"url":"http://a.example/"}}`)
	url := unsafe.String(&body[20], 17)
	c.add(url)
	if kept := c.slot(url).Load(); *kept != "http://a.example/" || unsafe.StringData(*kept) == unsafe.StringData(url) {
		t.Fatalf("%q is kept as a part of the body", *kept)
	}
	if !c.Has("http://a.example/") {
		t.Fatal("it is not found")
	}
}
