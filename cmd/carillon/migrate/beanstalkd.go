package migrate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/cmd/carillon/terminal"
)

type beanstalkdCmd struct {
	Address string   `default:"127.0.0.1:11300" placeholder:"HOST:PORT" help:"Server (${default})."`
	Tube    []string `placeholder:"TUBE" help:"Tubes; all by default. Each becomes a topic."`
	Prefix  string   `name:"id-prefix" default:"job-" placeholder:"TEXT" help:"What stands before a job's number in the timer's id; servers whose jobs go to one topic need one each (${default})."`
	FirstID uint64   `name:"first-id" default:"1" placeholder:"N" help:"First job id to look for, where a server has given out very many (${default})."`
}

// stalk is a connection to a beanstalkd.
type stalk struct {
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
}

// stalkJob is what stats-job shows of a job.
type stalkJob struct {
	id, pri uint64
	state   string
	due     time.Time
	ttr     time.Duration // time to run
}

// stalkPage is how many requests are under way at once.
const stalkPage = 1000

// Run reads jobs by their ids: nothing lists them. It takes O(ids given out) requests, and memory
// of O(jobs) without their bodies.
func (b *beanstalkdCmd) Run(term *terminal.Terminal) error {
	conn, err := net.DialTimeout("tcp", b.Address, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &stalk{conn, bufio.NewReaderSize(conn, 64<<10), bufio.NewWriterSize(conn, 64<<10)}
	last, err := s.lastID()
	if err != nil {
		return fmt.Errorf("beanstalkd: %w", err)
	}
	tubes := map[string][]stalkJob{}
	for from := b.FirstID; from <= last; from += stalkPage {
		if err := s.stats(from, min(from+stalkPage-1, last), tubes); err != nil {
			return fmt.Errorf("beanstalkd: %w", err)
		}
	}
	for _, name := range b.Tube {
		if tubes[name] == nil {
			return fmt.Errorf("there are no jobs in tube %s", name)
		}
	}
	if len(b.Tube) > 0 {
		maps.DeleteFunc(tubes, func(name string, _ []stalkJob) bool { return !slices.Contains(b.Tube, name) })
	}
	w := newWriter(term)
	topics := w.topics(slices.Sorted(maps.Keys(tubes)))
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		var jobs []stalkJob
		for _, name := range topics[topic] {
			jobs = append(jobs, tubes[name]...)
		}
		names := strings.Join(topics[topic], " and ")
		if err := b.topic(s, w, names, topic, jobs); err != nil {
			return fmt.Errorf("beanstalkd: tube %s: %w", names, err)
		}
	}
	if w.topic == "" {
		return errors.New("there are no jobs")
	}
	return w.close()
}

func (s *stalk) send(format string, args ...any) { fmt.Fprintf(s.w, format+"\r\n", args...) }

// receive is an answer, and what follows it where that is of the kind that is wanted.
func (s *stalk) receive(want string) (words []string, body []byte, err error) {
	if err = s.conn.SetDeadline(time.Now().Add(time.Minute)); err == nil {
		err = s.w.Flush()
	}
	if err != nil {
		return nil, nil, err
	}
	line, err := s.r.ReadString('\n')
	if err != nil {
		return nil, nil, err
	}
	words = strings.Fields(line)
	if len(words) < 2 || words[0] != want || want != "OK" && want != "FOUND" {
		return words, nil, nil
	}
	size, err := strconv.ParseUint(words[len(words)-1], 10, 31)
	if err != nil {
		return nil, nil, fmt.Errorf("it answered %q", line)
	}
	body = make([]byte, size+2)
	_, err = io.ReadFull(s.r, body)
	return words, body[:size], err
}

// lastID is the newest id, that of a job which is put for it and deleted at once.
func (s *stalk) lastID() (uint64, error) {
	s.send("use carillon-migrate")
	s.send("put 4294967295 86400 1 0\r\n")
	if _, _, err := s.receive("USING"); err != nil {
		return 0, err
	}
	words, _, err := s.receive("INSERTED")
	if err != nil {
		return 0, err
	}
	if len(words) != 2 || words[0] != "INSERTED" {
		return 0, fmt.Errorf("it answered %q to a put", strings.Join(words, " "))
	}
	last, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return 0, err
	}
	s.send("delete %d", last)
	_, _, err = s.receive("DELETED")
	return last - 1, err
}

// stats adds the jobs that have one of the ids.
func (s *stalk) stats(from, to uint64, tubes map[string][]stalkJob) error {
	for id := from; id <= to; id++ {
		s.send("stats-job %d", id)
	}
	for id := from; id <= to; id++ {
		words, body, err := s.receive("OK")
		if err != nil {
			return err
		}
		if body == nil {
			if len(words) == 0 || words[0] != "NOT_FOUND" {
				return fmt.Errorf("it answered %q to stats-job", strings.Join(words, " "))
			}
			continue
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(body)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			fields[name] = strings.Trim(value, `"`)
		}
		seconds := func(name string) time.Duration {
			n, _ := strconv.ParseInt(fields[name], 10, 64)
			return time.Duration(n) * time.Second
		}
		pri, err := strconv.ParseUint(fields["pri"], 10, 32)
		if err != nil {
			return fmt.Errorf("job %d: %w", id, err)
		}
		j := stalkJob{id: id, pri: pri, state: fields["state"], ttr: seconds("ttr"), due: time.Now()}
		if j.state == "delayed" {
			j.due = j.due.Add(seconds("time-left") + time.Second) // fractions are cut off; never early
		} else {
			j.due = j.due.Add(-seconds("age")) // ready since it was put, at the latest
		}
		tubes[fields["tube"]] = append(tubes[fields["tube"]], j)
	}
	return nil
}

// topic writes the jobs of a topic's tubes, for which it has one lease.
func (b *beanstalkdCmd) topic(s *stalk, w *writer, tubes, topic string, jobs []stalkJob) error {
	var lease time.Duration
	buried, priorities := 0, []uint64{}
	for _, j := range jobs {
		lease = max(lease, j.ttr)
		priorities = append(priorities, j.pri)
		switch j.state {
		case "reserved":
			return fmt.Errorf("job %d is reserved: stop the workers, which puts it back", j.id)
		case "buried":
			buried++
		}
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)
	if err := w.begin(tubes, topic, lease, false); err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j stalkJob) bool { return j.state == "buried" })
	for page := range slices.Chunk(jobs, stalkPage) {
		for _, j := range page {
			s.send("peek %d", j.id)
		}
		for _, j := range page {
			words, body, err := s.receive("FOUND")
			if err != nil {
				return err
			}
			if body == nil {
				return fmt.Errorf("job %d: it answered %q: %w", j.id, strings.Join(words, " "), errChanged)
			}
			timer := job{ID: idOf(fmt.Sprint(b.Prefix, j.id)), AtMs: j.due.UnixMilli(), Priority: rank(priorities, j.pri)}
			timer.carry(body)
			if err := w.add(&timer); err != nil {
				return err
			}
		}
	}
	var left []string
	if buried > 0 {
		left = []string{fmt.Sprintf("%d buried", buried)}
	}
	return w.end(len(jobs), left...)
}

// rank is a priority of ours, 0 to 255 and the highest first, for one of those in use, of which the
// lowest number goes first.
func rank(all []uint64, pri uint64) int {
	i, _ := slices.BinarySearch(all, pri)
	less := len(all) - 1 - i // urgent ones below it
	if len(all) > 256 {
		return less * 256 / len(all)
	}
	return less
}
