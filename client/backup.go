package client

import (
	"context"
	"io"
	"net/http"
)

// Backup has a node write a backup of the whole cluster, and gives it as it comes. Its reader must
// close it, and must check that it is whole before it counts: carillon ctl backup does.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	resp, _, err := c.open(ctx, &Request{Method: http.MethodPost, Path: Path("backup")})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
