package main

import (
	"fmt"
	"os"

	"carillon/cmd/carillon/terminal"
	"carillon/internal/vfs"
	"carillon/wal"
)

// walCmd looks at a log without changing it, so that it is safe while a node runs.
type walCmd struct {
	Inspect walInspectCmd `cmd:"" help:"Print what the logs and snapshots below a directory hold."`
	Verify  walVerifyCmd  `cmd:"" help:"Check every byte of the logs and snapshots below a directory."`
}

type walInspectCmd struct {
	Dir     string `arg:"" help:"A data directory, or part of one."`
	Frames  bool   `help:"A line for each frame."`
	Records bool   `help:"A line for each record too."`
}

func (c *walInspectCmd) Run(term *terminal.Terminal) error {
	return wal.Inspect(vfs.OS{}, c.Dir, term.Out, wal.InspectOptions{Frames: c.Frames || c.Records, Records: c.Records})
}

type walVerifyCmd struct {
	Dir string `arg:"" help:"A data directory, or part of one."`
}

func (c *walVerifyCmd) Run(term *terminal.Terminal) error {
	if _, err := os.ReadDir(c.Dir); err != nil {
		return fmt.Errorf("%w; is this the data directory?", err)
	}
	report, err := wal.Verify(vfs.OS{}, c.Dir)
	for _, note := range report.Notes {
		fmt.Fprintf(term.Out, "note: %s\n", note)
	}
	if err != nil {
		return fmt.Errorf("%w; keep a copy of the directory before anything else", err)
	}
	if report.Streams == 0 && report.Snapshots == 0 {
		return fmt.Errorf("there is no log and no snapshot in %s; is this the data directory?", c.Dir)
	}
	if report.Frames == 0 && report.Snapshots == 0 {
		return fmt.Errorf("the log in %s is empty, and there is no snapshot: if a node has served from it, its timers are gone; keep a copy of the directory before anything else", c.Dir)
	}
	fmt.Fprintf(term.Out, "good: %d streams, %d generations, %d frames, %d records, %d snapshots, %d bytes\n",
		report.Streams, report.Generations, report.Frames, report.Records, report.Snapshots, report.Bytes)
	return nil
}
