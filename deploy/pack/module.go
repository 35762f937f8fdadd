package main

import (
	"os"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeModule makes the zip of a version of a module, as a module proxy serves it.
func writeModule(path, version, dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := zip.CreateFromDir(f, module.Version{Path: path, Version: version}, dir); err != nil {
		return err
	}
	return f.Close()
}
