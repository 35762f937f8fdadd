package node

import (
	"log/slog"
)

// Files that a node needs beside its API's connections: at least so many for its log, snapshots,
// history and peers, …
const reservedFiles = 256

// … and of the rest as many for calls to receivers as for clients.
const shareOfClients = 2

// minConnections is how many connections the API always has: with fewer it could not be used.
const minConnections = 16

// connectionsWithin is how many connections of clients fit a limit of open files; 0 is no limit.
func connectionsWithin(files uint64, wanted int) int {
	if files == 0 {
		return wanted
	}
	room := (int64(min(files, 1<<40)) - reservedFiles) / shareOfClients
	return int(max(min(int64(wanted), room), minConnections))
}

// allowedConnections is the number of connections of the configuration, as far as the process may
// open files; it says so when that is less. Go has raised the limit as far as the process may by
// itself.
func allowedConnections(wanted int, log *slog.Logger) int {
	files := openFileLimit()
	n := connectionsWithin(files, wanted)
	if n < wanted {
		log.Warn("the limit of open files allows fewer connections of clients than --max-connections; raise it (LimitNOFILE=, ulimit -n)",
			"open_files", files, "max_connections", wanted, "allowed", n)
	}
	return n
}
