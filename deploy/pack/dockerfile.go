package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// lastStage reads the last stage of a Dockerfile, which begins with nothing: its settings, and the
// paths that it copies, each with its owner. An instruction that it does not know is an error, so
// that an image of docker build and ours cannot differ unnoticed.
func lastStage(file string) (s oci.ImageConfig, copied map[string]string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, nil, err
	}
	_, stage, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		return s, nil, fmt.Errorf("%s: no stage begins with nothing", file)
	}
	copied = map[string]string{}
	s.ExposedPorts, s.Volumes = map[string]struct{}{}, map[string]struct{}{}
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch word {
		case "", "#":
		case "COPY":
			owner := ""
			for _, w := range words {
				if after, ok := strings.CutPrefix(w, "--chown="); ok {
					owner = after
				}
			}
			copied[words[len(words)-1]] = owner
		case "USER":
			s.User = rest
		case "ENV":
			s.Env = append(s.Env, words...)
		case "VOLUME":
			for _, w := range words {
				s.Volumes[w] = struct{}{}
			}
		case "EXPOSE":
			for _, w := range words {
				s.ExposedPorts[w] = struct{}{}
			}
		case "STOPSIGNAL":
			s.StopSignal = rest
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &s.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &s.Cmd)
		default:
			err = fmt.Errorf("instruction %s is not known", word)
		}
		if err != nil {
			return s, nil, fmt.Errorf("%s: %s: %w", file, strings.TrimSpace(line), err)
		}
	}
	return s, copied, nil
}
