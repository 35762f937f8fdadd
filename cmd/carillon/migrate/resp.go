package migrate

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"carillon/cmd/carillon/terminal"
)

// RedisFlags name a server.
type RedisFlags struct {
	URL string `name:"redis" default:"redis://127.0.0.1:6379" env:"REDIS_URL" placeholder:"URL" help:"Server: redis://[user:password@]host[:port][/database], rediss:// with TLS; also REDIS_URL (${default})."`
}

// redisTimeout bounds each wait for the server.
const redisTimeout = time.Minute

// redisConn speaks version 2 of Redis's protocol. It may have many requests under way.
type redisConn struct {
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
}

func (f *RedisFlags) dial() (*redisConn, error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		return nil, terminal.Usagef("--redis: must be redis://host:port or rediss://host:port") // a password may be in it
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))
	conn, err := net.DialTimeout("tcp", address, redisTimeout)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "rediss" {
		conn = tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	}
	c := &redisConn{conn: conn, r: bufio.NewReaderSize(conn, 64<<10), w: bufio.NewWriterSize(conn, 64<<10)}
	if password, given := u.User.Password(); given {
		login := []string{"AUTH", password}
		if user := u.User.Username(); user != "" {
			login = []string{"AUTH", user, password}
		}
		_, err = c.do(login...)
	}
	if database := strings.Trim(u.Path, "/"); err == nil && database != "" {
		_, err = c.do("SELECT", database)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// send begins a request; its answer is read by receive, after those before it.
func (c *redisConn) send(args ...string) {
	fmt.Fprintf(c.w, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(c.w, "$%d\r\n%s\r\n", len(arg), arg)
	}
}

func (c *redisConn) do(args ...string) (any, error) {
	c.send(args...)
	answer, err := c.receive()
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", args[0], err) // the rest may be a password
	}
	return answer, nil
}

// count does a request whose answer is a number.
func (c *redisConn) count(args ...string) (int, error) {
	answer, err := c.do(args...)
	n, _ := answer.(int)
	return n, err
}

// texts does a request whose answer is a list of strings.
func (c *redisConn) texts(args ...string) ([]string, error) {
	answer, err := c.do(args...)
	if err != nil {
		return nil, err
	}
	return textsOf(answer), nil
}

func textsOf(answer any) []string {
	list, _ := answer.([]any)
	texts := make([]string, len(list))
	for i := range list {
		texts[i], _ = list[i].(string)
	}
	return texts
}

// receive is the next answer: a string, an int, a []any of them, or nil.
func (c *redisConn) receive() (any, error) {
	err := c.conn.SetDeadline(time.Now().Add(redisTimeout))
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return nil, err
	}
	answer, err := c.value()
	if fault, ok := answer.(redisError); ok {
		return nil, fault
	}
	return answer, err
}

// redisError is an answer; it leaves the connection as it was.
type redisError string

func (e redisError) Error() string { return string(e) }

const maxRedisString = 512 << 20 // what Redis allows

func (c *redisConn) value() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errNoRedis
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return redisError(text), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, errNoRedis
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$' && n <= maxRedisString:
		data := make([]byte, n+2)
		_, err := io.ReadFull(c.r, data)
		return string(data[:n]), err
	case kind == '*':
		var list []any
		for range n {
			v, err := c.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return nil, errNoRedis
}

var errNoRedis = errors.New("this is no answer of a Redis")

// watch has unchanged report whether the keys have changed since.
func (c *redisConn) watch(keys ...string) error {
	_, err := c.do(append([]string{"WATCH"}, keys...)...)
	return err
}

func (c *redisConn) unchanged() error {
	if _, err := c.do("MULTI"); err != nil {
		return err
	}
	switch answer, err := c.do("EXEC"); {
	case err != nil:
		return err
	case answer == nil:
		return errChanged
	}
	return nil
}
