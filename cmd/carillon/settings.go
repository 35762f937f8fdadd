package main

import (
	"os"
	"strings"
)

// A setting is one flag of serve, which is also an environment variable and a key of the
// configuration file. The fields of serveCmd are the one table of them: names, defaults and
// meanings come from there alone. A value is taken from the flag, else from the environment, else
// from the file, else it is the default.
type setting struct {
	flag    string // as in --flag
	key     string // in the file
	env     string
	meaning string
	accepts func(value string) error // nil error: the flag takes this value
}

// envPrefix leads the name of every environment variable of ours.
const envPrefix = "CARILLON_"

// callOnly are flags of serve that concern one call; a file cannot hold them.
var callOnly = map[string]bool{"help": true, "config": true}

func settingKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

func settingEnv(flag string) string { return envPrefix + strings.ToUpper(settingKey(flag)) }

func keys(known []setting) []string {
	names := make([]string, len(known))
	for i, s := range known {
		names[i] = s.key
	}
	return names
}

// trimEnvironment takes the end of the line off our variables: a value that comes from a file often
// leaves it there. An empty variable is none, as that of a container's settings that nobody filled
// in: what the file or the default says counts.
func trimEnvironment() {
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		if trimmed := strings.TrimRight(value, "\r\n"); trimmed == "" {
			_ = os.Unsetenv(name) // fails for names that no variable can have
		} else if trimmed != value {
			_ = os.Setenv(name, trimmed)
		}
	}
}
