package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"carillon/cmd/carillon/terminal"
	"carillon/loadtest"
)

// loadtestCmd runs the load tester. Each mode has the flags of loadtest.Config.
type loadtestCmd struct {
	Add   loadtestMode `cmd:"" help:"How many durable adds a second: timers that do not fire during the run."`
	Fire  loadtestMode `cmd:"" help:"How late timers fire: over time, or all in one instant."`
	Mixed loadtestMode `cmd:"" help:"Adds, changes, cancels and reads while timers fire."`
	Churn loadtestMode `cmd:"" help:"Timers most of which are cancelled before they fire."`
}

// loadtestMode is one mode, which newLoadtest sets.
type loadtestMode struct{ loadtest.Config }

func newLoadtest() (c loadtestCmd) {
	c.Add.Mode, c.Fire.Mode, c.Mixed.Mode, c.Churn.Mode = loadtest.ModeAdd, loadtest.ModeFire, loadtest.ModeMixed, loadtest.ModeChurn
	return c
}

// Run fails when the node broke a promise, with any figures.
func (m *loadtestMode) Run(term *terminal.Terminal) error {
	config := m.Config
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(config.Processors())
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	defer keepMonitorAwake(ctx)()
	report, err := loadtest.Run(ctx, config, term.Out, term.Err)
	switch {
	case errors.Is(err, loadtest.ErrConfig):
		return terminal.Usagef("%v", err)
	case err != nil:
		return err
	}
	if failures := report.Failures(); len(failures) > 0 {
		return fmt.Errorf("the node broke its promise: %s", strings.Join(failures, ", "))
	}
	// A 404 about a timer whose add was refused counts as an operation.
	took := report.Added + report.Changed + report.Prevented
	if (report.Ops == 0 || took == 0) && report.Errors > 0 {
		return fmt.Errorf("no operation succeeded: %s", report.FirstError)
	}
	return nil
}
