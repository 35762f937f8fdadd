package loadtest_test

import (
	"fmt"

	"carillon/loadtest"
)

// Duplicates are reported but are no failure: delivery is at least once.
func ExampleReport_Failures() {
	report := loadtest.Report{Ops: 1000, Fired: 998, Lost: 2, Early: 1, Duplicate: 3}
	for _, failure := range report.Failures() {
		fmt.Println(failure)
	}
	// Output:
	// 2 lost
	// 1 early
}
