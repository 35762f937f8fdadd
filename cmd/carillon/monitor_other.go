//go:build !linux

package main

import "context"

// keepMonitorAwake does nothing here: it was measured on Linux alone.
func keepMonitorAwake(context.Context) (stop func()) { return func() {} }
