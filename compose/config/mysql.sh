#!/bin/sh
# Run once by the image when it makes its data directory: the connector's user and a table to follow.
mysql -uroot -p"$MYSQL_ROOT_PASSWORD" <<SQL
CREATE USER 'klamm'@'%' IDENTIFIED BY '$KLAMM_MYSQL_PASSWORD';
GRANT SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'klamm'@'%';
CREATE DATABASE shop;
CREATE TABLE shop.customers (
  id INT PRIMARY KEY AUTO_INCREMENT,
  name VARCHAR(100) NOT NULL,
  email VARCHAR(200) NOT NULL,
  balance DECIMAL(10, 2) NOT NULL DEFAULT 0
);
INSERT INTO shop.customers (name, email, balance) VALUES
  ('Amalia', 'amalia@example.com', 12.50), ('Barnabas', 'barnabas@example.com', 0), ('Frieda', 'frieda@example.com', 7.25);
SQL
