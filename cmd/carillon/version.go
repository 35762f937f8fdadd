package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"carillon/cmd/carillon/terminal"
)

// Set by the linker (-X main.release=…, -X main.commit=…); see the Makefile.
var release, commit string

// version is the release, if the build knows it.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func revision() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	return ""
}

type versionCmd struct{}

func (versionCmd) Run(term *terminal.Terminal) error {
	_, err := fmt.Fprintf(term.Out, "carillon %s (commit %s, %s %s/%s)\n",
		version(), cmp.Or(revision(), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
