// Command golang is a receiver of Carillon's calls that does everything once:
//
//	SECRET=whsec_… go run ./docs/guides/receivers/golang 127.0.0.1:7780 receiver.log
//
// or, where the topic signs with a key, with PUBLIC_KEY=whpk_… instead.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"carillon/client"
)

// store keeps the calls that were handled, and the highest fence of each timer. One line, written
// in one call and synced, is one transaction; in your program it is a transaction of your database,
// as the README.md above this folder shows.
type store struct {
	mu     sync.Mutex
	file   *os.File
	fences map[string]uint64 // topic/timer → the highest
	done   map[string]bool   // webhook-ids
}

func open(name string) (*store, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // a crash cut the rest off
	if err := file.Truncate(int64(whole)); err != nil {
		return nil, err
	}
	s := &store{file: file, fences: map[string]uint64{}, done: map[string]bool{}}
	for line := range strings.Lines(string(text[:whole])) {
		if err := s.apply(strings.Fields(line)); err != nil {
			return nil, err
		}
	}
	_, err = file.Seek(int64(whole), 0)
	return s, err
}

func (s *store) apply(line []string) error {
	fence, err := strconv.ParseUint(line[0], 10, 64)
	s.fences[line[2]], s.done[line[1]] = fence, true
	return err
}

// receive says which status to answer.
func (s *store) receive(d *client.Delivery) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	timer := d.Topic + "/" + d.Timer
	if d.Fence <= s.fences[timer] {
		return http.StatusConflict, nil // a later attempt has been here: this one was held up on its way
	}
	body, repeated := base64.StdEncoding.EncodeToString(d.Body), s.done[d.ID]
	if repeated {
		body = "-" // done, but the answer was lost
	}
	line := []string{strconv.FormatUint(d.Fence, 10), d.ID, timer, body}
	if _, err := fmt.Fprintln(s.file, strings.Join(line, " ")); err != nil {
		return 0, err
	}
	if err := s.file.Sync(); err != nil {
		return 0, err
	}
	if !repeated {
		fmt.Printf("did %s attempt %d\n", timer, d.Attempt)
	}
	return http.StatusOK, s.apply(line)
}

func main() {
	store, err := open(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	// The store checks fences itself, in the transaction. If effects may be repeated, leave Fences
	// out and use Handle: it drops delayed calls of which this process remembers newer ones.
	options := client.ReceiverOptions{Fences: anyFence{}}
	if key := os.Getenv("PUBLIC_KEY"); key != "" {
		options.PublicKeys = []string{key}
	} else {
		options.Secrets = []string{os.Getenv("SECRET")}
	}
	receiver, err := client.NewReceiver(options)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], receiver.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delivery, _ := client.FromContext(r.Context())
		status, err := store.receive(delivery)
		if err != nil {
			log.Fatal(err) // the file's content is unknown now: the next start reads it
		}
		w.WriteHeader(status)
	}))))
}

// anyFence lets every call through.
type anyFence struct{}

func (anyFence) Admit(context.Context, string, string, uint64) (bool, error) { return true, nil }
