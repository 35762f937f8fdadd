package carillon_test

import (
	"go/ast"
	"path"
	"testing"
)

// places are all places where bytes that a client, or a receiver, has chosen are stored or printed.
// At each of them somebody may write what has the form of ours. The test feeds the place with such
// bytes (test/sim/forged) and looks for them to come back as data.
var places = []struct{ place, folder, test string }{
	{"frame of the log", "wal", "TestFrameInAPayloadProvesNothing"},
	{"frame of the log, a real process", "test/e2e", "TestPayloadThatIsAFrame"},
	{"frame of the log, power cuts of one node", "node", "TestCrashMatrixOfOneNode"},
	{"frame of the log, power cuts of a cluster", "test/sim", "TestCrashMatrix"},
	{"segment and end of another log", "wal", "TestFilesOfAnotherStream"},
	{"snapshot file", "wal", "TestSnapshotInASnapshot"},
	{"batch, and snapshot of a table", "shard/table", "TestTableInATable"},
	{"record and index of the history", "internal/history", "TestRecordInARecord"},
	{"any file, damaged at rest", "node", "TestDamageAtRestOfEveryFile"},
	{"internal/backup", "internal/backup", "TestBackupInABackup"},
	{"frame between nodes", "transport/peer", "TestFrameInAFrame"},
	{"answer, listing, NDJSON line", "transport/api", "TestUsersBytesAreData"},
	{"id, key, label, URL and header of a request, problem", "transport/api", "TestUsersNamesAreData"},
	{"server-sent event", "transport/api/events", "TestStrangersTextsInEvents"},
	{"cursor", "transport/api/timers", "TestPlaceInACursor"},
	{"receipt", "node/calls", "TestTextsAreNoReceipts"},
	{"label of a metric", "node/metrics", "TestLabelsOfMetricsAreData"},
	{"line of the audit log", "internal/audit", "TestTextsAreNoLines"},
	{"line of the log, text and JSON", "transport/callback", "TestStrangersTextsInTheLog"},
	{"call: body, headers, CloudEvent", "transport/callback", "TestBodiesAndHeadersAreData"},
	{"page of the console", "transport/console", "TestTextsAreNoMarkup"},
}

// TestEveryPlaceOfUsersBytesIsTested: each test that is named is there.
func TestEveryPlaceOfUsersBytesIsTested(t *testing.T) {
	there := map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.isTest {
				there[path.Dir(f.name)+" "+fn.Name.Name] = true
			}
		}
	}
	for _, p := range places {
		if !there[p.folder+" "+p.test] {
			t.Errorf("%s: %s has no test %s", p.place, p.folder, p.test)
		}
	}
}
