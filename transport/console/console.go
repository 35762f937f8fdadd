// Package console is the page that a node shows to people: static files, in the binary, that ask
// the API for all that they show. They hold no data, so that they may be given to anybody.
//
// There is no build step: the browser gets static/ as it is. static/vendor/ has two libraries as
// their authors publish them (vendor.sha256 has their sums, licences/ their licences): htm with
// preact 10 (htm 3.1.1, htm/preact/standalone) and uPlot 1.6.32.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"path"
)

//go:embed static
var static embed.FS

// File is one of the page's.
type File struct {
	Body []byte
	Type string // of its content
	ETag string
}

// Site is the page with all that belongs to it.
type Site struct{ files map[string]*File }

// New reads the files that the binary has.
func New() *Site {
	s := &Site{files: map[string]*File{}}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		f := &File{Body: body, Type: typeOf(name), ETag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		s.files["/console"+name[len("static"):]] = f
		if name == "static/index.html" {
			s.files["/"] = f
		}
		return nil
	})
	if err != nil {
		panic("console: the binary lacks its own files: " + err.Error())
	}
	return s
}

// typeOf does not ask the machine, which may think otherwise.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// File is the file at a path, nil when there is none. A nil Site has no files.
func (s *Site) File(path string) *File {
	if s == nil {
		return nil
	}
	return s.files[path]
}

// Policy confines the page's browser: it runs scripts and styles from files of this node alone,
// asks this node alone, sends forms nowhere, and is shown in nobody's frame.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Headers go with every file.
var Headers = [][2]string{
	{"Content-Security-Policy", Policy},
	{"X-Content-Type-Options", "nosniff"},
	{"Referrer-Policy", "no-referrer"},
	{"X-Frame-Options", "DENY"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	// Asked for each time, and answered by 304: nodes may be of two releases.
	{"Cache-Control", "no-cache"},
}
