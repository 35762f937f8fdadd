// Command pack makes the parts of a release for which other people need a container engine or a
// version control system: the container image and the zip of the Go client's module; and it
// collects the licences of what is in a binary, also into BINARY.cdx.json, if there is one. The
// same sources give the same bytes, at any time and in any folder.
//
//	pack image -version 1.0.0 -time 1767225600 -dockerfile FILE -binaries DIR -out FILE
//	pack licences -version v1.0.0 -out FILE BINARY…
//	pack module -path example.com/carillon/client -version v1.0.0 -dir ../../client -out FILE
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("what to make is missing: image, licences or module")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	version := flags.String("version", "", "version of the release")
	out := flags.String("out", "", "file to make")
	switch args[0] {
	case "image":
		b := imageBuild{architectures: []string{"amd64", "arm64"}}
		flags.StringVar(&b.dockerfile, "dockerfile", "", "Dockerfile whose last stage the image is")
		flags.StringVar(&b.binaries, "binaries", "", "folder with carillon-linux-ARCHITECTURE")
		flags.Int64Var(&b.seconds, "time", 0, "time of everything in the image, in Unix seconds")
		_ = flags.Parse(args[1:])
		b.version = *version
		return b.write(*out)
	case "licences":
		_ = flags.Parse(args[1:])
		l := licences{version: *version}
		if err := l.read(flags.Args()); err != nil {
			return err
		}
		if err := l.notices(*out); err != nil {
			return err
		}
		for _, binary := range flags.Args() {
			if list := binary + ".cdx.json"; exists(list) {
				if err := l.complete(list); err != nil {
					return err
				}
			}
		}
		return nil
	case "module":
		path := flags.String("path", "", "path of the module")
		dir := flags.String("dir", "", "folder of the module")
		_ = flags.Parse(args[1:])
		return writeModule(*path, *version, *dir, *out)
	}
	return fmt.Errorf("%q is neither image nor licences nor module", args[0])
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
