package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Backup has a node write a backup of the whole cluster, and gives it as it comes. Its reader must
// close it, and must check that it is whole before it counts: carillon ctl backup does.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	r := Request{Method: http.MethodPost, Path: Path("backup")}
	for tried := 1; ; tried++ {
		at := c.current.Load()
		req, err := http.NewRequestWithContext(ctx, r.Method, c.nodes[int(at)%len(c.nodes)]+r.Path, nil)
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		c.fillHeader(req.Header, &r)
		resp, err := c.options.HTTP.Do(req)
		if err != nil {
			c.current.CompareAndSwap(at, at+1)
			if neverSent(err) && tried < len(c.nodes) && ctx.Err() == nil {
				continue
			}
			return nil, &unanswered{r.Method + " " + r.Path, err}
		}
		if resp.StatusCode/100 == 2 {
			return resp.Body, nil
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		return nil, errors.Join(readProblem(resp, data), err, resp.Body.Close())
	}
}
