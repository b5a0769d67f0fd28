#!/bin/sh
# Makes certificates for trying out TLS between MindSpore's processes (net_tls.py): a certificate authority, one
# certificate for the scheduler's side of a connection and one for the workers' side, and MindSpore's config.json.
#
#     sh make_certificates.sh DIRECTORY
#
# Every process needs the directory, under the same path on all hosts. The two keys are encrypted by the passwords in
# MS_TLS_SERVER_PASSWORD and MS_TLS_CLIENT_PASSWORD; a password that is not given is made up and kept in DIRECTORY, in
# server.password or client.password. No password is ever an argument of a command, where ps would show it.
#
# For trials: the authority's own key is deleted in the end, so no more certificates can be made of it, and none can be
# revoked. Needs openssl 1.1.1 or later.
set -eu
umask 077

[ $# = 1 ] || { echo "usage: sh make_certificates.sh DIRECTORY" >&2; exit 2; }
command -v openssl >/dev/null || { echo "make_certificates.sh: there is no openssl; install it" >&2; exit 1; }
mkdir -p "$1"
directory=$(cd "$1" && pwd)
case $directory in
    *[\"\\]*) echo "make_certificates.sh: config.json cannot hold the name $directory" >&2; exit 1 ;;
esac
[ ! -e "$directory/config.json" ] || { echo "make_certificates.sh: $1 has certificates already" >&2; exit 1; }
draft=$(mktemp -d "$directory/draft.XXXXXX")
trap 'rm -rf "$draft"' EXIT
cd "$draft"

# MindSpore wants both: a key identifier in each certificate, and the issuer's in those that it issued.
cat >openssl.cnf <<'END'
[req]
distinguished_name = name
prompt = no
[name]
CN = mslaunch example authority
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
END

quietly() {  # openssl tells of each step; only what fails is of interest
    "$@" >openssl.log 2>&1 || { cat openssl.log >&2; exit 1; }
}

password() {  # side, what the environment gave: the password in a file of its own
    if [ -n "$2" ]; then
        printf '%s\n' "$2" >"$1.secret"
    else
        openssl rand -hex 16 >"$1.secret"
        cp "$1.secret" "$1.password"
    fi
}

quietly openssl req -x509 -newkey rsa:3072 -nodes -sha256 -days 3650 -config openssl.cnf -extensions authority \
    -keyout ca.key -out ca.crt

member() {  # side
    quietly openssl req -new -newkey rsa:3072 -sha256 -config openssl.cnf -subj "/CN=mslaunch example $1" \
        -passout "file:$1.secret" -keyout "$1.key" -out "$1.csr"
    quietly openssl x509 -req -in "$1.csr" -sha256 -days 825 -CA ca.crt -CAkey ca.key -CAcreateserial \
        -extfile openssl.cnf -extensions member -out "$1.crt"
    # openssl reads the password of the key and that of the new file from two lines of one file; MindSpore refuses a
    # file that has the authority's certificate too
    cat "$1.secret" "$1.secret" >"$1.twice"
    quietly openssl pkcs12 -export -in "$1.crt" -inkey "$1.key" -name "$1" \
        -passin "file:$1.twice" -passout "file:$1.twice" -out "$1.p12"
}

password server "${MS_TLS_SERVER_PASSWORD-}"
password client "${MS_TLS_CLIENT_PASSWORD-}"
unset MS_TLS_SERVER_PASSWORD MS_TLS_CLIENT_PASSWORD
member server
member client

# Of the ciphers that MindSpore takes, those of today.
cat >config.json <<END
{
  "server_cert_path": "$directory/server.p12",
  "client_cert_path": "$directory/client.p12",
  "ca_cert_path": "$directory/ca.crt",
  "crl_path": "",
  "cipher_list": "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256",
  "cert_expire_warning_time_in_day": 90
}
END

for side in server client; do
    [ ! -e "$side.password" ] || mv "$side.password" "$directory/"
    mv "$side.p12" "$directory/"
done
mv ca.crt config.json "$directory/"
echo "$directory"
