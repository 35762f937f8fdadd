// Package bucket keeps backups in S3, or in any store that speaks its protocol. A Place is a bucket
// and a key, or the first part of keys, in it.
//
// Credentials and addresses come from the usual environment variables and files of AWS; see
// credentials.go. A Place never shows them: not in an error, and not as text.
//
// A key has a whole backup or nothing. Save uploads in parts, which the store shows under the key
// once the upload is completed. That happens after the backup has been verified to its end.
package bucket
