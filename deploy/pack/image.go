package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageBuild makes the container image of a release as an OCI archive: a tar file of an OCI image
// layout, with an image for each architecture behind one index.
type imageBuild struct {
	version, dockerfile, binaries string
	seconds                       int64
	architectures                 []string

	blobs map[string][]byte // by digest; a few binaries, so memory holds them
}

func (b *imageBuild) when() time.Time { return time.Unix(b.seconds, 0).UTC() }

var versioned = specs.Versioned{SchemaVersion: 2}

func (b *imageBuild) write(file string) error {
	b.blobs = map[string][]byte{}
	all := oci.Index{Versioned: versioned, MediaType: oci.MediaTypeImageIndex}
	for _, architecture := range b.architectures {
		d, err := b.image(architecture)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	named := b.addJSON(oci.MediaTypeImageIndex, all)
	named.Annotations = map[string]string{oci.AnnotationRefName: "carillon:" + b.version}
	top, err := json.Marshal(oci.Index{Versioned: versioned, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{named}})
	if err != nil {
		return err
	}

	var archive bytes.Buffer
	w := tree{w: tar.NewWriter(&archive), when: b.when()}
	w.file(oci.ImageLayoutFile, 0o644, "", []byte(`{"imageLayoutVersion":"`+oci.ImageLayoutVersion+`"}`))
	w.file(oci.ImageIndexFile, 0o644, "", top)
	w.folder(oci.ImageBlobsDir, "")
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
func (b *imageBuild) image(architecture string) (oci.Descriptor, error) {
	set, copied, err := lastStage(b.dockerfile)
	if err != nil {
		return oci.Descriptor{}, err
	}
	about := map[string]string{
		oci.AnnotationTitle:    "carillon",
		oci.AnnotationVersion:  b.version,
		oci.AnnotationLicenses: "MIT",
	}
	set.Labels = about
	files, err := b.layer(architecture, copied)
	if err != nil {
		return oci.Descriptor{}, err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is a known one
	if _, err := z.Write(files); err != nil {
		return oci.Descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return oci.Descriptor{}, err
	}
	when, p := b.when(), oci.Platform{Architecture: architecture, OS: "linux"}
	c := oci.Image{
		Created: &when, Platform: p, Config: set,
		RootFS:  oci.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(files)}},
		History: []oci.History{{Created: &when, CreatedBy: "carillon " + b.version}},
	}
	d := b.addJSON(oci.MediaTypeImageManifest, oci.Manifest{
		Versioned: versioned, MediaType: oci.MediaTypeImageManifest,
		Config: b.addJSON(oci.MediaTypeImageConfig, c), Layers: []oci.Descriptor{b.add(oci.MediaTypeImageLayerGzip, packed.Bytes())},
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
	made := map[string]bool{} // a layer names each path once
	for _, name := range slices.Sorted(maps.Keys(copied)) {
		for _, folder := range above(name) {
			if !made[folder] {
				w.folder(folder, "")
			}
			made[folder] = true
		}
		var file string
		switch name {
		case "/carillon":
			w.file("carillon", 0o755, copied[name], binary)
		case "/etc/ssl/certs/ca-certificates.crt":
			w.file(name[1:], 0o644, copied[name], authorities())
		case "/usr/share/doc/carillon/copyright":
			file = "LICENSE"
		case "/usr/share/doc/carillon/third-party-notices.txt":
			file = filepath.Join(b.binaries, "third-party-notices.txt")
		case "/data", "/tmp":
			w.folder(name[1:], copied[name])
		default:
			return nil, fmt.Errorf("%s: what to copy to %s is not known", b.dockerfile, name)
		}
		if file != "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			w.file(name[1:], 0o644, copied[name], text)
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

func (b *imageBuild) add(mediaType string, blob []byte) oci.Descriptor {
	d := digest.FromBytes(blob)
	b.blobs[d.Encoded()] = blob
	return oci.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(blob))}
}

func (b *imageBuild) addJSON(mediaType string, v any) oci.Descriptor {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all its fields can be written
	}
	return b.add(mediaType, text)
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
