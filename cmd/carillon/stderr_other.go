//go:build !linux

package main

import "carillon/cmd/carillon/terminal"

func keepCrashFromBlocking(*terminal.Terminal) {}
