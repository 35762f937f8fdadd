package migrate

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"carillon/cmd/carillon/terminal"
)

// RedisFlags name a server.
type RedisFlags struct {
	URL string `name:"redis" default:"redis://127.0.0.1:6379" env:"REDIS_URL" placeholder:"URL" help:"Server: redis://[user:password@]host[:port][/database], rediss:// with TLS; also REDIS_URL (${default})."`
}

// redisTimeout bounds each wait for the server.
const redisTimeout = time.Minute

// redisConn is a connection that may have many requests under way: Send begins one, and receive
// reads the answers in that order.
type redisConn struct{ redis.Conn }

func (f *RedisFlags) dial() (c redisConn, err error) {
	u, err := url.Parse(f.URL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		return c, terminal.Usagef("--redis: must be redis://host:port or rediss://host:port") // a password may be in it
	}
	password, login := u.User.Password()
	user, database := u.User.Username(), strings.Trim(u.Path, "/")
	u.User, u.Path = nil, ""
	c.Conn, err = redis.DialURL(u.String(), redis.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}),
		redis.DialConnectTimeout(redisTimeout), redis.DialReadTimeout(redisTimeout), redis.DialWriteTimeout(redisTimeout))
	if err != nil {
		return c, err
	}
	// by our own requests, so that an error names the one that was refused
	switch {
	case login && user != "":
		_, err = c.do("AUTH", user, password)
	case login:
		_, err = c.do("AUTH", password)
	}
	if err == nil && database != "" {
		_, err = c.do("SELECT", database)
	}
	if err != nil {
		_ = c.Close()
	}
	return c, err
}

func (c redisConn) do(command string, args ...any) (any, error) {
	answer, err := c.Do(command, args...)
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", command, err) // the rest may be a password
	}
	return answer, nil
}

// count does a request whose answer is a number.
func (c redisConn) count(command string, args ...any) (int, error) {
	return redis.Int(c.do(command, args...))
}

// texts does a request whose answer is a list of strings.
func (c redisConn) texts(command string, args ...any) ([]string, error) {
	return redis.Strings(c.do(command, args...))
}

// receive is the next answer to a request that was sent.
func (c redisConn) receive() (any, error) {
	if err := c.Flush(); err != nil {
		return nil, err
	}
	return c.Receive()
}

// watch has unchanged report whether the keys have changed since.
func (c redisConn) watch(keys ...any) error {
	_, err := c.do("WATCH", keys...)
	return err
}

func (c redisConn) unchanged() error {
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
