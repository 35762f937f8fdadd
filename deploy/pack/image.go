package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// imageBuild makes the container image of a release as an OCI archive: a tar file of an OCI image
// layout, with an image for each architecture behind one index.
type imageBuild struct {
	version, dockerfile, binaries string
	seconds                       int64
	architectures                 []string

	blobs map[string][]byte // by digest; a few binaries, so memory holds them
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type config struct {
	Created time.Time `json:"created"`
	platform
	Config  settings `json:"config"`
	RootFS  rootFS   `json:"rootfs"`
	History []step   `json:"history"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type step struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

func (b *imageBuild) when() time.Time { return time.Unix(b.seconds, 0).UTC() }

func (b *imageBuild) write(file string) error {
	b.blobs = map[string][]byte{}
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, architecture := range b.architectures {
		d, err := b.image(architecture)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	named := b.addJSON(typeIndex, all)
	named.Annotations = map[string]string{"org.opencontainers.image.ref.name": b.version}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{named}})
	if err != nil {
		return err
	}

	var archive bytes.Buffer
	w := tree{w: tar.NewWriter(&archive), when: b.when()}
	w.file("oci-layout", 0o644, "", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	w.file("index.json", 0o644, "", top)
	w.folder("blobs", "")
	w.folder("blobs/sha256", "")
	for _, d := range slices.Sorted(maps.Keys(b.blobs)) {
		w.file("blobs/sha256/"+d, 0o644, "", b.blobs[d])
	}
	if err := w.close(); err != nil {
		return err
	}
	return os.WriteFile(file, archive.Bytes(), 0o644)
}

// image adds the blobs of one architecture's image and describes its manifest.
func (b *imageBuild) image(architecture string) (descriptor, error) {
	set, copied, err := lastStage(b.dockerfile)
	if err != nil {
		return descriptor{}, err
	}
	about := map[string]string{
		"org.opencontainers.image.title":    "carillon",
		"org.opencontainers.image.version":  b.version,
		"org.opencontainers.image.licenses": "MIT",
	}
	set.Labels = about
	files, err := b.layer(architecture, copied)
	if err != nil {
		return descriptor{}, err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is a known one
	if _, err := z.Write(files); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	p := platform{architecture, "linux"}
	c := config{
		Created: b.when(), platform: p, Config: set,
		RootFS:  rootFS{"layers", []string{"sha256:" + digest(files)}},
		History: []step{{b.when(), "carillon " + b.version}},
	}
	d := b.addJSON(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest,
		Config: b.addJSON(typeConfig, c), Layers: []descriptor{b.add(typeLayer, packed.Bytes())},
		Annotations: about,
	})
	d.Platform = &p
	return d, nil
}

// layer is the tar file of all that a container sees.
func (b *imageBuild) layer(architecture string, copied map[string]string) ([]byte, error) {
	binary, err := os.ReadFile(filepath.Join(b.binaries, "carillon-linux-"+architecture))
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tree{w: tar.NewWriter(&files), when: b.when()}
	for _, name := range slices.Sorted(maps.Keys(copied)) {
		for _, folder := range above(name) {
			w.folder(folder, "")
		}
		switch name {
		case "/carillon":
			w.file("carillon", 0o755, copied[name], binary)
		case "/etc/ssl/certs/ca-certificates.crt":
			w.file(name[1:], 0o644, copied[name], authorities())
		case "/data":
			w.folder("data", copied[name])
		default:
			return nil, fmt.Errorf("%s: what to copy to %s is not known", b.dockerfile, name)
		}
	}
	if err := w.close(); err != nil {
		return nil, err
	}
	return files.Bytes(), nil
}

// authorities are the certificates of Mozilla's trust store, at the version that go.mod names, so
// that the image does not depend on the machine that it is built on. As in Debian's package, roots
// that Mozilla trusts only for older certificates are among them.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
	}
	return out.Bytes()
}

func (b *imageBuild) add(mediaType string, blob []byte) descriptor {
	d := digest(blob)
	b.blobs[d] = blob
	return descriptor{MediaType: mediaType, Digest: "sha256:" + d, Size: len(blob)}
}

func (b *imageBuild) addJSON(mediaType string, v any) descriptor {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all its fields can be written
	}
	return b.add(mediaType, text)
}

func digest(blob []byte) string {
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}

// tree writes files that all have one time. The first failure is what close returns.
type tree struct {
	w    *tar.Writer
	when time.Time
	err  error
}

func (t *tree) file(name string, mode int64, owner string, body []byte) {
	t.entry(tar.Header{Name: name, Mode: mode, Size: int64(len(body))}, owner)
	if t.err == nil {
		_, t.err = t.w.Write(body)
	}
}

func (t *tree) folder(name, owner string) {
	t.entry(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, owner)
}

func (t *tree) entry(h tar.Header, owner string) {
	h.Uid, h.Gid = ids(owner)
	h.ModTime, h.Format = t.when, tar.FormatUSTAR
	if t.err == nil {
		t.err = t.w.WriteHeader(&h)
	}
}

func (t *tree) close() error {
	if t.err != nil {
		return t.err
	}
	return t.w.Close()
}

// ids are the numbers of an owner, UID:GID; root's without one.
func ids(owner string) (uid, gid int) {
	u, g, _ := strings.Cut(owner, ":")
	uid, _ = strconv.Atoi(u)
	gid, _ = strconv.Atoi(g)
	return uid, gid
}

// above are the folders that a path lies in, from the top on.
func above(name string) (list []string) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		list = append(list, dir[1:])
	}
	slices.Reverse(list)
	return list
}
