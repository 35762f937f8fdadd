package demo

import (
	"testing"

	"carillon/loadtest"
)

func TestResultNamesBrokenPromises(t *testing.T) {
	if f := (Result{Report: loadtest.Report{Fired: 1, Duplicate: 3}}).Failures(); len(f) != 0 {
		t.Errorf("%v", f)
	}
	if f := (Result{Report: loadtest.Report{Fired: 1, Lost: 1, Early: 2}}).Failures(); len(f) != 2 || f[0] != "1 lost" || f[1] != "2 early" {
		t.Errorf("%v", f)
	}
	if f := (Result{}).Failures(); len(f) != 1 {
		t.Errorf("a run without calls proves nothing: %v", f)
	}
}
